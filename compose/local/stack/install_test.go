// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Goal: an error names what is missing and what to do, and a package's service is not
// started, however the installation ends. Method: the real script, with a PATH of
// substitutes for apt-get and sudo.

// bin makes a folder of scripts and puts it first in PATH, or makes it the whole PATH.
func bin(t *testing.T, instead bool, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := dir
	if !instead {
		path += ":" + os.Getenv("PATH")
	}
	t.Setenv("PATH", path)
}

func TestInstall_WithoutAPackageManagerSaysWhatToDo(t *testing.T) {
	bin(t, true, nil)
	err := installPackages(t.Context(), []string{"postgresql"}, []string{"postgresql@18"}, io.Discard)
	if err == nil {
		t.Fatal("installPackages succeeded without a package manager")
	}
	for _, want := range []string{"missing: postgresql", "neither apt-get nor brew", "SHOP_POSTGRES_URL"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestInstall_AFailedBuildSaysWhatToDo(t *testing.T) {
	bin(t, true, map[string]string{"go": "echo 'dial tcp: no route to host' >&2; exit 1"})
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	err := kinds["etcd"].program.build(t.Context(), io.Discard)
	if err == nil {
		t.Fatal("build succeeded without a Go compiler")
	}
	for _, want := range []string{"no route to host", "GOPROXY", "SHOP_ETCD_SERVER"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if _, ok := kinds["etcd"].program.built(); ok {
		t.Error("a program was found after a failed build")
	}
}

// apt runs the real script with a substitute for apt-get.
func apt(t *testing.T, aptGet string) (policy, out string, err error) {
	t.Helper()
	policy = filepath.Join(t.TempDir(), "policy-rc.d")
	bin(t, false, map[string]string{"apt-get": aptGet})
	t.Setenv("POLICY", policy)
	content, err := exec.Command("sh", "-c", aptScript, "apt.sh", policy, "redis-server").CombinedOutput()
	return policy, string(content), err
}

func TestAptScript_RefusesToStartServicesOnlyWhileItRuns(t *testing.T) {
	policy, out, err := apt(t, `"$POLICY" redis-server start; echo "policy says $?"`)
	if err != nil || !strings.Contains(out, "policy says 101") {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(policy); !errors.Is(err, os.ErrNotExist) {
		t.Error("the policy is still there")
	}
}

func TestAptScript_LeftBehindItsPolicyAllowsAndRemovesItself(t *testing.T) {
	policy, out, err := apt(t, "kill -KILL $PPID")
	if err == nil {
		t.Fatalf("the script survived: %s", out)
	}
	if _, err := os.Stat(policy); err != nil {
		t.Fatalf("inconclusive: the policy is gone already: %v", err)
	}
	if out, err := exec.Command(policy, "redis-server", "start").CombinedOutput(); err != nil {
		t.Errorf("the policy still refuses: %v: %s", err, out)
	}
	if _, err := os.Stat(policy); !errors.Is(err, os.ErrNotExist) {
		t.Error("the policy is still there")
	}
}

func TestAptScript_KeepsAPolicyThatWasThere(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy-rc.d")
	bin(t, false, map[string]string{"apt-get": "exit 0"})
	if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-c", aptScript, "apt.sh", policy, "redis-server").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(policy); err != nil {
		t.Errorf("the system's own policy was removed: %v", err)
	}
}

// Absent or old package lists make the first install fail.
func TestAptScript_FetchesTheListsOnlyWhenNeeded(t *testing.T) {
	lists := filepath.Join(t.TempDir(), "lists")
	t.Setenv("LISTS", lists)
	_, out, err := apt(t, `case "$*" in *update*) echo updated; touch "$LISTS";; *) test -e "$LISTS" && echo installed;; esac`)
	if err != nil || !strings.Contains(out, "updated\ninstalled") {
		t.Fatalf("%v: %s", err, out)
	}
	if _, out, err := apt(t, `case "$*" in *update*) echo updated;; esac`); err != nil || strings.Contains(out, "updated") {
		t.Fatalf("%v: %s", err, out)
	}
}

// MariaDB's server would replace an installed MySQL.
func TestAptScript_RemovesNoPackage(t *testing.T) {
	_, out, err := apt(t, `case "$*" in *install*--no-remove*) echo careful;; *) exit 1;; esac`)
	if err != nil || out != "careful\n" {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestInstall_OneAtATime(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	unlock, err := lockInstall(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("cancelled by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := lockInstall(ctx, io.Discard); !errors.Is(err, cause) {
		t.Fatalf("a second installation: %v, want it to wait", err)
	}
	unlock()
	again, err := lockInstall(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestNeed_InstallsOnlyWhatIsMissing(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	bin(t, true, map[string]string{"gcc": "exit 0"})
	if err := Need(t.Context(), "gcc", []string{"gcc", "libc6-dev"}, io.Discard); err != nil {
		t.Errorf("with the tool on PATH: %v", err)
	}
	if err := Need(t.Context(), os.Getenv("PATH")+"/gcc", []string{"gcc"}, io.Discard); err != nil {
		t.Errorf("with the file: %v", err)
	}
	if err := Need(t.Context(), "/nowhere/library.py", []string{"library"}, io.Discard); err == nil || !strings.Contains(err.Error(), "missing: library") {
		t.Errorf("without the file: %v", err)
	}
	if err := os.Remove(os.Getenv("PATH") + "/gcc"); err != nil {
		t.Fatal(err)
	}
	err := Need(t.Context(), "gcc", []string{"gcc", "libc6-dev"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "missing: gcc, libc6-dev") {
		t.Errorf("without the tool and a package manager: %v", err)
	}
}
