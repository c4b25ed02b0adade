// SPDX-License-Identifier: MIT

package examples

import (
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var packageSpan = regexp.MustCompile("`(locking[a-z/]*)`( with its `migrations`)?")

// The packages that the page lists for a purchase are those that the folder inventory and its tests depend on. A copy of
// them compiles.
func TestCopying_AWholeLessonCompiles(t *testing.T) {
	_, section, _ := strings.Cut(read(t, page), "\n## A whole lesson\n")
	section = strings.Join(strings.Fields(section), " ")
	_, said, _ := strings.Cut(section, "For a purchase these are ")
	said, tests, found := strings.Cut(said, "The tests also need ")
	tests, _, ends := strings.Cut(tests, ". ")
	if !found || !ends {
		t.Fatalf("%s does not say what a whole lesson needs", page)
	}
	take := []string{"inventory", "inventory/migrations"}
	listed := func(sentence string) (packages []string) {
		for _, m := range packageSpan.FindAllStringSubmatch(sentence, -1) {
			packages, take = append(packages, m[1]), append(take, m[1])
			if m[2] != "" {
				take = append(take, path.Join(m[1], "migrations"))
			}
		}
		return packages
	}
	code := dependencies(t)
	if got := listed(said); !slices.Equal(got, code) {
		t.Errorf("%s lists %q, want %q", page, got, code)
	}
	// The tests of redislock go along, and need its servers.
	more := slices.DeleteFunc(dependencies(t, "-test", "./locking/redislock"), func(pkg string) bool { return slices.Contains(code, pkg) })
	if got := slices.Sorted(slices.Values(listed(tests))); !slices.Equal(got, more) {
		t.Errorf("%s lists %q for the tests, want %q", page, got, more)
	}
	if out, err := goCommand(t, copied(t, take), "", "vet", "./..."); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}

// dependencies returns the other packages of this module that the folder inventory needs, sorted.
func dependencies(t *testing.T, flags ...string) (packages []string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"list", "-deps"}, flags, []string{"./inventory"})...)
	list.Dir = filepath.Clean(repo)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if pkg, ours := strings.CutPrefix(line, "shop/"); ours && !strings.HasPrefix(pkg, "inventory") && !strings.Contains(pkg, ".test") {
			packages = append(packages, pkg)
		}
	}
	slices.Sort(packages)
	return packages
}
