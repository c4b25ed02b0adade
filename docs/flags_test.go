// SPDX-License-Identifier: MIT

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// programs are the programs of this repository, and the folders in which their flags are declared.
var programs = map[string]string{
	"shop": "cmd/shop", "prove": "loadtest/prove", "local": "compose/local",
	"mutants": "loadtest/mutants", "size": "loadtest/size",
}

var (
	program = regexp.MustCompile(`(?:^|[;&|(]|-- |exec |[A-Z_]=\S* )\s*(?:bin/)?([a-z]+)(?:\s|$)`)
	flag    = regexp.MustCompile(`(?:^|\s)--([a-z][a-z0-9-]*)`)
	flagVar = regexp.MustCompile(`flag\.\w+Var\(&[^,]+, "([a-z-]+)"`)
)

// flags returns the flags in a command, each with the program before it. It leaves out those of programs of others.
func flags(code string) (all []string) {
	for _, m := range flag.FindAllStringSubmatchIndex(code, -1) {
		name := ""
		for _, p := range program.FindAllStringSubmatch(code[:m[0]+1], -1) {
			if _, ours := programs[p[1]]; ours || elsewhere[p[1]] {
				name = p[1]
			}
		}
		if _, ours := programs[name]; ours && code[m[2]:m[3]] != "help" {
			all = append(all, name+" --"+code[m[2]:m[3]])
		}
	}
	return all
}

// elsewhere are programs of others whose flags stand on the pages.
var elsewhere = map[string]bool{"docker": true, "go": true, "etcdctl": true, "chromium": true}

// declared returns the flags that the structs of kong, or calls of package flag, declare in a folder.
func declared(t *testing.T, folder string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repo, folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no program in %s: %v", folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flagVar.FindAllSubmatch(text, -1) {
			all = append(all, string(m[1]))
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			field, is := n.(*ast.Field)
			if !is || field.Tag == nil || len(field.Names) != 1 {
				return true
			}
			tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
			_, command := tag.Lookup("cmd")
			if _, arg := tag.Lookup("arg"); !command && !arg && tag.Get("help") != "" {
				all = append(all, commandName(field.Names[0].Name, tag))
			}
			return true
		})
	}
	return all
}
