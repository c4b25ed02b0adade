package stack

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

//go:embed apt.sh
var aptScript string

// install brings what is missing, side by side: what we build, and packages with
// one call, which may be what it takes to fetch the rest.
func install(ctx context.Context, missing []program, log io.Writer) error {
	group, ctx := errgroup.WithContext(ctx)
	var apt, brew []string
	var wheels []program
	for _, p := range missing {
		switch {
		case p.module != "":
			group.Go(func() error { return p.build(ctx, log) })
		case p.wheel.usable():
			apt, wheels = append(apt, p.wheel.lacks()...), append(wheels, p)
		default:
			apt, brew = append(apt, p.apt), append(brew, p.brew)
		}
	}
	group.Go(func() error {
		if len(apt) > 0 {
			if err := installPackages(ctx, apt, brew, log); err != nil {
				return err
			}
		}
		for _, p := range wheels {
			if err := p.fetch(ctx, log); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// installPackages asks the system's package manager; it may ask for a password.
func installPackages(ctx context.Context, apt, brew []string, log io.Writer) error {
	var command, packages []string
	switch {
	case has("apt-get"):
		packages = apt
		command = append([]string{"sh", "-c", aptScript, "apt.sh", "/usr/sbin/policy-rc.d"}, apt...)
		if os.Geteuid() != 0 {
			if !has("sudo") {
				return manual(packages, "neither root nor sudo is at hand", "as root: apt-get install "+strings.Join(apt, " "))
			}
			command = append([]string{"sudo"}, command...) // asks for a password if it must, and can
		}
	case runtime.GOOS == "darwin" && has("brew"):
		packages = brew
		command = append([]string{"brew", "install", "--quiet"}, brew...)
	default:
		return manual(apt, "this system has neither apt-get nor brew", "install "+strings.Join(apt, " and ")+", with all that belongs to it")
	}
	fmt.Fprintf(log, "stack: installing %s (once)\n", strings.Join(packages, ", "))
	if out, err := runTool(ctx, command...); err != nil {
		return manual(packages, fmt.Sprintf("%s failed: %v\n%s", command[0], err, lastLines(out, 15)), strings.Join(append([]string{"try"}, packages...), " ")+" by hand: is the network up, are the package lists fresh?")
	}
	return nil
}

// manual is the message for whoever has to do by hand what could not be done.
func manual(what []string, why, todo string) error {
	return fmt.Errorf("stack: missing: %s: %s\n  what to do: %s\n  or set the servers' addresses (SHOP_POSTGRES_URL, SHOP_REDIS_URL, SHOP_ETCD_ENDPOINTS, SHOP_MONGO_URL) to ones that run",
		strings.Join(what, ", "), why, todo)
}

// runTool runs an installer or a compiler. Interrupted, it may finish what would
// otherwise be left half installed.
func runTool(ctx context.Context, command ...string) (string, error) {
	var out strings.Builder
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	return out.String(), errors.Join(err, context.Cause(ctx))
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func has(tool string) bool {
	_, err := exec.LookPath(tool)
	return err == nil
}

// cacheDir is where what took long is kept.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("stack: no cache folder: %w: set XDG_CACHE_HOME or HOME", err)
	}
	dir = filepath.Join(dir, "shop")
	return dir, os.MkdirAll(dir, 0o755)
}

// lockInstall lets one process of this user install at a time.
func lockInstall(ctx context.Context, log io.Writer) (unlock func(), err error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		lock, err := tryLock(filepath.Join(dir, "install.lock"))
		if err == nil {
			return func() { _ = lock.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("stack: %w", err)
		}
		if !said {
			fmt.Fprintln(log, "stack: waiting for another installation to end")
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
