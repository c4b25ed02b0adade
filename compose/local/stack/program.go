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
)

// program says where a server's program is found, and where it comes from when
// it is not there.
type program struct {
	file   string   // its name
	beside []string // programs that must stand beside it
	dirs   []string // where to look when PATH has none; may hold *
	apt    string   // Debian's package
	brew   string   // Homebrew's
	module string   // our Go module that builds it, when no package is good enough
	wheel  wheel    // PyPI's package that holds it, where no other does
}

// variable is the setting that names the program: SHOP_REDIS_SERVER.
func (p program) variable() string {
	name, _, _ := strings.Cut(p.file, "-")
	return "SHOP_" + strings.ToUpper(name) + "_SERVER"
}

// find looks in the setting, in PATH, and in the usual places, in this order.
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
	if p.wheel.usable() {
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

// accept wants a program, with all that must stand beside it. Its name is kept
// as it is: a program may behave by the name it is called by.
func (p program) accept(path string) (string, bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	for _, file := range append(p.besides(realPath(path)), path) {
		if _, err := exec.LookPath(file); err != nil {
			return "", false
		}
	}
	return path, true
}

// realPath follows links: to where the tools beside a program are, and to the
// name by which the kernel knows it.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func (p program) besides(path string) []string {
	var files []string
	for _, name := range p.beside {
		files = append(files, filepath.Join(filepath.Dir(path), name))
	}
	return files
}

// provide finds the programs of the kinds named, and installs or builds those
// that are missing. It is slow once.
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
	// Somebody may have installed them while we waited.
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
