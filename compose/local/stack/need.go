package stack

import (
	"context"
	"io"
)

// Need sees to it that a tool which is no server is there, a C compiler for the
// race detector, say: if it is not on PATH, the packages are installed as those of
// the servers are. Each name is a package of Debian and of Homebrew alike.
func Need(ctx context.Context, tool string, packages []string, log io.Writer) error {
	if has(tool) {
		return nil
	}
	unlock, err := lockInstall(ctx, log)
	if err != nil {
		return err
	}
	defer unlock()
	if has(tool) { // the one we waited for was after the same
		return nil
	}
	return installPackages(ctx, packages, packages, log)
}
