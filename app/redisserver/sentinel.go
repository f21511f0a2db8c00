package redisserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Sentinel is a sentinel process, which ends with this one. Make one with [NewSentinel], and Close it.
type Sentinel struct {
	*Server
	folder string // for what it writes down
}

// NewSentinel starts a sentinel that watches masters, addresses by name. It takes one for gone that has not answered for a time, if
// quorum sentinels do, and promotes a replica. The error is [ErrNone] if there is no redis-server to start.
func NewSentinel(ctx context.Context, quorum int, gone time.Duration, masters map[string]string) (*Sentinel, error) {
	folder, err := os.MkdirTemp("", "cachelab-sentinel-")
	if err != nil {
		return nil, fmt.Errorf("start a sentinel: %w", err)
	}
	s := &Sentinel{folder: folder}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(masters)) {
		fmt.Fprintf(&lines, "sentinel monitor %[1]s %[2]s %[3]d\nsentinel down-after-milliseconds %[1]s %[4]d\nsentinel failover-timeout %[1]s %[5]d\n",
			name, strings.ReplaceAll(masters[name], ":", " "), quorum, gone.Milliseconds(), 10*gone.Milliseconds())
	}
	config := filepath.Join(folder, "sentinel.conf")
	if err = os.WriteFile(config, []byte(lines.String()), 0o600); err == nil {
		s.Server, err = launch(ctx, "Sentinel ID is", config, "--sentinel", "--bind", "127.0.0.1", "--dir", folder)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return s, nil
}

// Close stops it.
func (s *Sentinel) Close() error { return errors.Join(s.Server.Close(), os.RemoveAll(s.folder)) }
