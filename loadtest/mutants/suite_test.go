// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// small is a tree whose shop prints its stock, which is compiled in, and its prices, which are
// embedded. A script stands for prove, and derives S1 and S2 from what the shop prints.
var small = map[string]string{
	"go.mod":               "module shop\n\ngo 1.24\n",
	"cmd/shop/prices.txt":  "free: no\n",
	"cmd/shop/main.go":     "package main\n\nimport (\n\t_ \"embed\"\n)\n\n//go:embed prices.txt\nvar prices string\n\nfunc main() {\n\tprint(prices)\n\tprint(\"stock: right\\n\")\n}\n",
	"loadtest/mutants/x.c": "no mutant\n",
	"loadtest/mutants/inventory/free.diff": `teaches: an embedded file is changed
scenario: inventory/row/none
invariant: S2

--- a/cmd/shop/prices.txt
+++ b/cmd/shop/prices.txt
@@ -1 +1 @@
-free: no
+free: yes
`,
	"loadtest/mutants/inventory/stock.diff": `teaches: a Go file is changed
scenario: inventory/row/none
invariant: S1

--- a/cmd/shop/main.go
+++ b/cmd/shop/main.go
@@ -9,5 +9,5 @@
 
 func main() {
 	print(prices)
-	print("stock: right\n")
+	print("stock: wrong\n")
 }
`,
	"prove": `#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in --shop) shop=$2 ;; --out) out=$2 ;; --fault) fault=$2 ;; --duration) duration=$2 ;; esac
	shift
done
seen=$("$shop" 2>&1)
s1=0; case $seen in *wrong*) s1=1 ;; esac
s2=0; case $seen in *yes*) s2=1 ;; esac
verdict=safe; [ $s1$s2 = 00 ] || verdict=violated
echo '{"scenarios": [{"flow": "inventory", "verdict": "'$verdict'", "violations": {"S1": '$s1', "S2": '$s2'}}]}' >"$out/prove.json"
echo "$fault for $duration"
[ $verdict = safe ]
`,
}

// plant writes a tree with additional files.
func plant(t *testing.T, more map[string]string) string {
	t.Helper()
	tree := t.TempDir()
	for _, files := range []map[string]string{small, more} {
		for path, text := range files {
			path = filepath.Join(tree, filepath.FromSlash(path))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tree
}

// runOn runs the program on a tree.
func runOn(t *testing.T, tree string, args ...string) (status int, out string, err error) {
	t.Helper()
	var printed bytes.Buffer
	args = append(args, "--tree", tree, "--prove", filepath.Join(tree, "prove"), "--out", filepath.Join(tree, "out"))
	status, err = run(t.Context(), args, &printed, &printed)
	return status, printed.String(), err
}

func TestRun_CatchesWhatIsChangedAndLeavesTheTreeAlone(t *testing.T) {
	tree := plant(t, nil)
	status, out, err := runOn(t, tree, "--unchanged")
	if status != allCaught || err != nil || strings.Count(out, "caught") != 2 || !strings.Contains(out, "3 of 3") {
		t.Errorf("status %d, %v\n%s", status, err, out)
	}
	for path, want := range small {
		if text, err := os.ReadFile(filepath.Join(tree, path)); err != nil || string(text) != want {
			t.Errorf("%s was touched: %v\n%s", path, err, text)
		}
	}
	log, err := os.ReadFile(filepath.Join(tree, "out/inventory/stock/prove.log"))
	if err != nil || !strings.Contains(string(log), "none for 2s") {
		t.Errorf("prove's log: %q, %v", log, err)
	}
}

func TestRun_FailsUnlessEachIsCaughtByItsInvariant(t *testing.T) {
	const diff = "teaches: nothing\nscenario: inventory/row/none\ninvariant: S1\nprove: --duration 4s\n\n--- a/cmd/shop/FILE\n+++ b/cmd/shop/FILE\n@@ -1 +1 @@\n-OLD\n+NEW\n"
	for want, edit := range map[string]*strings.Replacer{
		"accident":   strings.NewReplacer("FILE", "prices.txt", "OLD", "free: no", "NEW", "free: yes"),
		"slipped":    strings.NewReplacer("FILE", "prices.txt", "OLD", "free: no", "NEW", "free: maybe"),
		"failed":     strings.NewReplacer("FILE", "prices.txt", "OLD", "free: never", "NEW", "free: yes"),                                                                // does not apply
		"redeclared": strings.NewReplacer("FILE", "main.go", "@@ -1 +1 @@", "@@ -8,3 +8,3 @@", "-OLD", " var prices string\n-", "NEW", "var prices int\n func main() {"), // does not build
	} {
		tree := plant(t, map[string]string{"loadtest/mutants/inventory/other.diff": edit.Replace(diff)})
		status, out, err := runOn(t, tree, "--only", "inventory/other")
		if status != notCaught || err == nil || !strings.Contains(out, want) || !strings.Contains(out, "0 of 1") {
			t.Errorf("%s: status %d, %v\n%s", want, status, err, out)
		}
	}
}

func TestRun_AnUnmodifiedShopThatIsNotSafeFails(t *testing.T) {
	tree := plant(t, map[string]string{"cmd/shop/prices.txt": "free: no\nyes\n"})
	status, out, _ := runOn(t, tree, "--unchanged", "--only", "inventory/stock")
	if status != notCaught || !strings.Contains(out, "the unmodified shop") || !strings.Contains(out, "1 of 2") {
		t.Errorf("status %d\n%s", status, out)
	}
}

func TestRun_AProveThatCannotRunFails(t *testing.T) {
	tree := plant(t, map[string]string{"prove": "#!/bin/sh\necho 'no servers'\nexit 2\n"})
	status, out, _ := runOn(t, tree, "--only", "inventory/stock")
	if status != notCaught || !strings.Contains(out, "no servers") {
		t.Errorf("status %d\n%s", status, out)
	}
}

func TestRun_RefusesWrongUsage(t *testing.T) {
	tree := plant(t, nil)
	for _, args := range [][]string{{"--only", "inventory/none-such"}, {"--tenth", "tomorrow"}, {"--nonsense"}} {
		if status, out, err := runOn(t, tree, args...); status != couldNotRun || err == nil {
			t.Errorf("%v: status %d, %v\n%s", args, status, err, out)
		}
	}
	if err := os.RemoveAll(filepath.Join(tree, folder)); err != nil {
		t.Fatal(err)
	}
	if status, _, err := runOn(t, tree); status != couldNotRun || !strings.Contains(err.Error(), "root of the repository") {
		t.Errorf("without mutants: status %d, %v", status, err)
	}
}

func TestRun_ListsTheMutants(t *testing.T) {
	status, out, err := runOn(t, plant(t, nil), "--list")
	if status != allCaught || err != nil || !strings.Contains(out, "an embedded file is changed") || !strings.Contains(out, "2 mutants") {
		t.Errorf("status %d, %v\n%s", status, err, out)
	}
}
