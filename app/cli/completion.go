package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"cachelab/app/modes"
)

// newCompletionCommand is "completion": a script that teaches a shell the lab's commands and flags.
func newCompletionCommand(root *cobra.Command) *cobra.Command {
	scripts := map[string]func(io.Writer) error{
		"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":  root.GenZshCompletion,
		"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	}
	shells := slices.Sorted(maps.Keys(scripts))
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "a script that lets the shell complete commands and flags",
		Long: `Prints a script for the shell. For this session, or in the shell's start-up file:

  bash   source <(cachelab completion bash)        (needs the package bash-completion)
  zsh    source <(cachelab completion zsh)         (after compinit)
  fish   cachelab completion fish | source`,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || scripts[args[0]] == nil {
				return errUsage{fmt.Errorf("completion for which shell? Want %s, got %q", modes.Or(shells), shown(args))}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return scripts[args[0]](c.OutOrStdout()) },
	}
}
