//go:build unix

package children

import (
	"os/exec"
	"syscall"
)

// inOwnGroup keeps a Ctrl-C on the terminal from the process: it is this process that ends it, in order.
func inOwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
