package stack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// A program whose packages are too old, or none, is a Go module of ours with a
// main of five lines. It is built once; the cache is keyed by all that decides
// what comes out.

// built finds it in the cache.
func (p program) built() (string, bool) {
	path, _, err := p.cached()
	if err != nil {
		return "", false
	}
	return p.accept(path)
}

// cached names the module's folder and the file that it is built to.
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

// build compiles it. The file appears under its name only when it is whole.
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
		return fmt.Errorf("stack: %s cannot be built: %w\n%s\n  what to do: the modules are fetched the first time: is the network up, is GOPROXY right?\n  or set %s to such a program", p.file, err, lastLines(out, 15), p.variable())
	}
	fmt.Fprintf(log, "stack: built %s in %.0f s\n", p.file, time.Since(start).Seconds())
	return os.Rename(half, path)
}

// moduleRoot is the folder of this module's go.mod: above the working folder, or
// else where this file was compiled.
func moduleRoot() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	wd, err := os.Getwd()
	if err != nil {
		wd = file
	}
	for _, dir := range []string{wd, filepath.Dir(file)} {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "compose", "local", "stack", "build.go")); err == nil {
				return dir, nil
			}
		}
	}
	return "", errors.New("the module's folder is not found: run this inside it")
}
