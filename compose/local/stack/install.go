// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"crypto/sha256"
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

	"shop/locking/servertest/daemon"
)

//go:embed apt.sh
var aptScript string

// install builds and installs the missing programs concurrently. All packages are
// installed with one call, before the downloads from PyPI, which may need them.
func install(ctx context.Context, missing []program, log io.Writer) error {
	group, ctx := errgroup.WithContext(ctx)
	var apt, brew []string
	var downloads []program
	for _, p := range missing {
		switch {
		case p.module != "":
			group.Go(func() error { return p.build(ctx, log) })
		case p.pypi.usable():
			apt, downloads = append(apt, p.pypi.missing()...), append(downloads, p)
		default:
			apt, brew = append(apt, strings.Fields(p.apt)...), append(brew, strings.Fields(p.brew)...)
		}
	}
	group.Go(func() error {
		if len(apt) > 0 {
			if err := installPackages(ctx, apt, brew, log); err != nil {
				return err
			}
		}
		for _, p := range downloads {
			if err := p.fetch(ctx, log); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// installPackages runs the system's package manager, which may ask for a password.
func installPackages(ctx context.Context, apt, brew []string, log io.Writer) error {
	var command, packages []string
	switch {
	case has("apt-get"):
		packages = apt
		command = append([]string{"sh", "-c", aptScript, "apt.sh", "/usr/sbin/policy-rc.d"}, apt...)
		if os.Geteuid() != 0 {
			if !has("sudo") {
				return manual(packages, "neither root nor sudo is available", "as root: apt-get install "+strings.Join(apt, " "))
			}
			command = append([]string{"sudo"}, command...)
		}
	case runtime.GOOS == "darwin" && has("brew"):
		packages = brew
		command = append([]string{"brew", "install", "--quiet"}, brew...)
	default:
		return manual(apt, "this system has neither apt-get nor brew", "install "+strings.Join(apt, " and ")+" with their dependencies")
	}
	fmt.Fprintf(log, "stack: installing %s (once)\n", strings.Join(packages, ", "))
	if out, err := runTool(ctx, command...); err != nil {
		return manual(packages, fmt.Sprintf("%s failed: %v\n%s", command[0], err, daemon.LastLines(out, 15)), strings.Join(append([]string{"try"}, packages...), " ")+" by hand: is the network up, are the package lists fresh?")
	}
	return nil
}

// manual is the error for an installation that must be done by hand.
func manual(what []string, why, todo string) error {
	return fmt.Errorf("stack: missing: %s: %s\n  what to do: %s\n  or set the servers' addresses (SHOP_POSTGRES_URL, SHOP_REDIS_URL, SHOP_ETCD_ENDPOINTS, SHOP_MONGO_URL, SHOP_ZOOKEEPER_SERVERS) to running ones",
		strings.Join(what, ", "), why, todo)
}

// runTool runs an installer or a compiler. When ctx ends it gets SIGTERM and 30
// seconds, so that it leaves nothing half installed.
func runTool(ctx context.Context, command ...string) (string, error) {
	var out strings.Builder
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	return out.String(), errors.Join(err, context.Cause(ctx))
}

// has reports whether tool is on PATH, or is a server in /usr/sbin, which is not on the PATH of every user.
func has(tool string) bool {
	for _, name := range []string{tool, filepath.Join("/usr/sbin", tool)} {
		if _, err := exec.LookPath(name); err == nil {
			return true
		}
	}
	return false
}

// isFile reports whether path is absolute and exists, for example a library.
func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil && filepath.IsAbs(path)
}

// cacheDir returns the folder of built and downloaded programs.
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
	for logged := false; ; logged = true {
		lock, err := tryLock(filepath.Join(dir, "install.lock"))
		if err == nil {
			return func() { _ = lock.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("stack: %w", err)
		}
		if !logged {
			fmt.Fprintln(log, "stack: waiting for another installation to end")
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// built finds in the cache a program that is built from a Go module in this repository,
// because distributions have no package of it, or an outdated one. It is built once; the
// cache key covers all inputs of the build.
func (p program) built() (string, bool) {
	path, _, err := p.cached()
	if err != nil {
		return "", false
	}
	return p.accept(path)
}

// cached returns the path of the built program and the folder of its module.
func (p program) cached() (path, source string, err error) {
	root, err := moduleRoot()
	if err != nil {
		return "", "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", "", err
	}
	source = filepath.Join(root, filepath.FromSlash(p.module))
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", "", err
		}
		sum.Write(content)
	}
	fmt.Fprint(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return filepath.Join(cache, fmt.Sprintf("%s-%x", p.file, sum.Sum(nil)[:8]), p.file), source, nil
}

// build compiles the module. The program appears under its name only when complete.
func (p program) build(ctx context.Context, log io.Writer) error {
	path, source, err := p.cached()
	if err != nil {
		return fmt.Errorf("stack: %s: %w", p.file, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(log, "stack: building %s (once, about a minute)\n", p.file)
	start := time.Now()
	half := path + ".half"
	out, err := runTool(ctx, "go", "build", "-C", source, "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", half, ".")
	if err != nil {
		_ = os.Remove(half)
		return fmt.Errorf("stack: %s cannot be built: %w\n%s\n  what to do: the first build downloads modules: check the network and GOPROXY\n  or set %s to the path of a program", p.file, err, daemon.LastLines(out, 15), p.variable())
	}
	fmt.Fprintf(log, "stack: built %s in %.0f s\n", p.file, time.Since(start).Seconds())
	return os.Rename(half, path)
}

// moduleRoot returns the folder of this module's go.mod: above the working folder, or
// else above the source of this file.
func moduleRoot() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	wd, err := os.Getwd()
	if err != nil {
		wd = file
	}
	for _, dir := range []string{wd, filepath.Dir(file)} {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "compose", "local", "stack", "doc.go")); err == nil {
				return dir, nil
			}
		}
	}
	return "", errors.New("the folder of the module shop is not found: run this inside it")
}

// Need installs packages unless tool is on PATH or is the absolute path of a file. It is
// for tools that are no servers, such as the C compiler that the race detector needs. Each
// name must be a package of Debian and of Homebrew.
func Need(ctx context.Context, tool string, packages []string, log io.Writer) error {
	if has(tool) || isFile(tool) {
		return nil
	}
	unlock, err := lockInstall(ctx, log)
	if err != nil {
		return err
	}
	defer unlock()
	if has(tool) || isFile(tool) { // installed by the process that held the lock
		return nil
	}
	return installPackages(ctx, packages, packages, log)
}
