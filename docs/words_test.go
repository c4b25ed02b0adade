// SPDX-License-Identifier: MIT

package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	span    = regexp.MustCompile("`([^`]+)`")
	command = regexp.MustCompile(`(?:^|[\s;&|(])(?:bin/)?(make|shop)\s+([a-z][a-z-]*)`)
	target  = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

// links returns the broken links of a line, of which own are the anchors of the page. It does not follow links to other
// sites.
func links(folder, line string, own []string) (wrong []string) {
	for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(line, ""), -1) {
		path, anchor, _ := strings.Cut(m[1], "#")
		if path == "" && !slices.Contains(own, anchor) {
			wrong = append(wrong, "no such heading: "+m[1])
		}
		if path == "" || strings.Contains(path, "://") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, path)) // links are relative to the page
		switch info, missing := os.Stat(filepath.Join(folder, path)); {
		case missing != nil:
			wrong = append(wrong, "no such file: "+m[1])
		case info.IsDir():
		case err != nil:
			wrong = append(wrong, err.Error())
		case anchor != "" && strings.HasSuffix(path, ".md") && !slices.Contains(anchors(string(text)), anchor):
			wrong = append(wrong, "no such heading: "+m[1])
		}
	}
	return wrong
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		anchor := strings.ToLower(strings.ReplaceAll(m[1], " ", "-"))
		all = append(all, notInAnchor.ReplaceAllString(anchor, ""))
	}
	return all
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_-]`)
)

// inline returns the parts of a line between backticks.
func inline(line string) (code []string) {
	for _, m := range span.FindAllStringSubmatch(line, -1) {
		code = append(code, m[1])
	}
	return code
}

// unknown returns the commands and flags in code that do not exist.
func unknown(code []string, known map[string]bool) (wrong []string) {
	for _, c := range code {
		for _, m := range command.FindAllStringSubmatch(c, -1) {
			if name := m[1] + " " + m[2]; !known[name] {
				wrong = append(wrong, "no such command: "+name)
			}
		}
		for _, name := range flags(c) {
			if !known[name] {
				wrong = append(wrong, "no such flag: "+name)
			}
		}
	}
	return wrong
}

// commands returns the targets of the Makefile and the commands of the program.
func commands(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	makefile, err := os.ReadFile(filepath.Join(repo, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		known["make "+m[1]] = true
	}
	main, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repo, "cmd/shop/main.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(main, func(n ast.Node) bool {
		if field, is := n.(*ast.Field); is && field.Tag != nil && len(field.Names) == 1 {
			tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
			if _, isCommand := tag.Lookup("cmd"); isCommand {
				known["shop "+commandName(field.Names[0].Name, tag)] = true
			}
		}
		return true
	})
	for program, folder := range programs {
		for _, flag := range declared(t, folder) {
			known[program+" --"+flag] = true
		}
	}
	for _, must := range []string{"make test", "shop serve", "shop --request-timeout", "prove --check-time", "local --servers", "size --rows"} {
		if !known[must] {
			t.Fatalf("%s was not found: this test must be fixed", must)
		}
	}
	return known
}

var capital = regexp.MustCompile(`([a-z])([A-Z])`)

// commandName returns the name that kong uses: the tag's, or else the field's with hyphens.
func commandName(field string, tag reflect.StructTag) string {
	if name := tag.Get("name"); name != "" {
		return name
	}
	return strings.ToLower(capital.ReplaceAllString(field, "$1-$2"))
}

// The negative control: check must report each of these mistakes.
func TestCheck_ReportsWhatDoesNotExist(t *testing.T) {
	known := commands(t)
	const fine = "<!-- docs/words_test.go -->\n```go\nif name := tag.Get(\"name\"); name != \"\" {\n\treturn name\n}\n```"
	for name, c := range map[string]struct {
		page  string
		wrong int
	}{
		"a snippet from the middle of a function": {fine, 0},
		"… with an empty line after its source":   {strings.Replace(fine, " -->\n", " -->\n\n", 1), 0},
		"a snippet without a source":              {fine[strings.Index(fine, "```"):], 1},
		"… with the source too far above":         {strings.Replace(fine, " -->\n", " -->\ntext\n", 1), 1},
		"a source that is not there":              {strings.Replace(fine, "words", "no", 1), 1},
		"a line that is not there":                {strings.Replace(fine, "return name", "return nothing", 1), 1},
		"a line that was left out":                {strings.Replace(fine, "\treturn name\n", "", 1), 1},
		"an indentation that is not there":        {strings.Replace(fine, "\treturn", "return", 1), 1},
		"an empty snippet":                        {"<!-- docs/words_test.go -->\n```sql\n```", 1},
		"a block without end":                     {strings.TrimSuffix(fine, "```"), 1},
		"another language":                        {"```json\n{}\n```", 0},
		"links":                                   {"[a](words_test.go) [b](../Makefile#L1) [c](https://example.org/x) [d](#here)\n\n## Here", 0},
		"a link to nowhere":                       {"see [a](words_test.go) and [b](nowhere.go)", 1},
		"commands":                                {"`make test`, `bin/shop serve --lab`, make haste, shop around\n<!-- not run: this is a test -->\n```sh\nA=1 make test && shop serve &\n```", 0},
		"a target that is not there":              {"`make believe`", 1},
		"a command that is not there":             {"text\n<!-- not run: this is a test -->\n```sh\neval \"$(bin/shop lift)\"\n```", 1},
		"flags":                                   {"`bin/prove --flow transfer --seed=1`, `shop serve --lab`, `--lock-ttl`, `docker run --rm`", 0},
		"a flag that is not there":                {"`bin/prove --flows transfer`", 1},
		"a flag of another program":               {"`bin/local exec --servers etcd -- bin/shop serve --servers etcd`", 1},
		"a heading":                               {"[a](choosing.md#stock)", 0},
		"a heading of the page that is not there": {"[a](#here)", 1},
		"a heading that is not there":             {"[a](choosing.md#bonds)", 1},
		"commands that no test runs":              {"text\n```sh\nmake test\n```", 1},
		"commands of a test that does not":        {"<!-- docs/words_test.go -->\n```sh\nmake test\n```", 1},
		"commands that a test runs":               {"<!-- docs/examples/typed_test.go -->\n```sh\nmake test\n```", 0},
		"YAML without its language":               {"```\naudits:\n  - file: a.sql\n```", 1},
		"a diagram that is wrong":                 {"```mermaid\nsequenceDiagram\n    participant A\n    A->>B: a question\n```", 1},
	} {
		if wrong := check(".", c.page, known); len(wrong) != c.wrong {
			t.Errorf("%s: %s, want %d problems", name, fmt.Sprintf("%q", wrong), c.wrong)
		}
	}
}
