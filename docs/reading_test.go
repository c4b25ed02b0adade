package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// readings are the pages with a reading list.
var readings = map[string]struct {
	filesMax int
	from     []string // where the path begins, and what it calls through an interface or a table
}{
	"inventory.md": {17, []string{ // a purchase with redis+row
		"inventory.BuyWith", "inventory.redisRow", "locking/redislock.TryAcquire", "locking/redislock.Release",
	}},
	"transfer.md": {20, []string{ // a transfer with etcd-fenced
		"transfer.Transfer", "transfer.etcdFenced", "locking/etcdlock.Acquire", "locking/etcdlock.Release",
	}},
	"copying.md": {10, []string{ // a lock in Redis, with Do
		"locking.Do", "locking/redislock.TryAcquire", "locking/redislock.Renew", "locking/redislock.Release",
	}},
}

func TestPages_ReadingListIsThePathAndShort(t *testing.T) {
	c := newCode()
	for page, want := range readings {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		wrong, has := reading(c, string(text), want.from)
		if has.files > want.filesMax {
			wrong = append(wrong, fmt.Sprintf("%d files to read, want %d at most", has.files, want.filesMax))
		}
		for _, w := range wrong {
			t.Errorf("docs/%s: %s", page, w)
		}
		t.Logf("docs/%s: %d files, %d lines to read, %d of them code", page, has.files, has.lines, has.code)
	}
}

// size is how much there is to read.
type size struct{ files, lines, code int }

// reading compares the reading list of a page with what the functions in from call, and its numbers with the files.
func reading(c *code, page string, from []string) (wrong []string, has size) {
	read, left := linked(page, "| read |"), linked(page, "| not read |")
	reached, err := c.follow(from, left)
	if err != nil {
		return []string{err.Error()}, has
	}
	for _, file := range reached {
		if !slices.Contains(read, file) && !slices.Contains(left, file) {
			wrong = append(wrong, "the path uses "+file+", which is not listed")
		}
	}
	for _, file := range slices.Concat(read, left) {
		if strings.HasSuffix(file, ".go") && !slices.Contains(reached, file) {
			wrong = append(wrong, "the path does not use "+file)
		}
	}
	for _, file := range read {
		if err := has.add(file); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if said := stated(page); said.files != has.files || !near(said.lines, has.lines) || !near(said.code, has.code) {
		wrong = append(wrong, fmt.Sprintf("the page says %+v, the files are %+v", said, has))
	}
	return wrong, has
}

// add counts a file.
func (s *size) add(file string) error {
	text, err := os.ReadFile(file) // a link is relative to the page, and so is the test
	s.files++
	for line := range strings.Lines(string(text)) {
		s.lines++
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "--") {
			s.code++
		}
	}
	return err
}

var sizeText = regexp.MustCompile(`(\d+) files with about ([\d,]+) lines, about ([\d,]+) of them code`)

// stated returns the numbers that a page states.
func stated(page string) size {
	m := sizeText.FindStringSubmatch(strings.Join(strings.Fields(page), " "))
	if m == nil {
		return size{}
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(strings.ReplaceAll(m[i+1], ",", ""))
	}
	return size{n[0], n[1], n[2]}
}

// near reports whether two numbers differ by at most 3 %.
func near(a, b int) bool { return 100*max(a-b, b-a) <= 3*b }

// linked returns the files to which the rows of a table link in their first cell.
func linked(page, head string) (files []string) {
	inTable := false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, head):
			inTable = true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable:
			row, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), " | ")
			for _, m := range link.FindAllStringSubmatch(row, -1) {
				files = append(files, m[1])
			}
		}
	}
	return files
}

// code is the code of this module, type-checked without the packages of others. An
// expression that needs one of those has no type; a name of this module is resolved all the same.
type code struct {
	fset      *token.FileSet
	packages  map[string]*types.Package
	uses      map[*ast.Ident]types.Object
	functions map[token.Pos]*ast.FuncDecl // by the position of the name
	named     map[string][]token.Pos      // by folder and name: functions and methods
}

func newCode() *code {
	return &code{
		fset: token.NewFileSet(), packages: map[string]*types.Package{}, uses: map[*ast.Ident]types.Object{},
		functions: map[token.Pos]*ast.FuncDecl{}, named: map[string][]token.Pos{},
	}
}

// Import type-checks a package of this module. A package of others is empty.
func (c *code) Import(name string) (*types.Package, error) {
	if p := c.packages[name]; p != nil {
		return p, nil
	}
	folder, ours := strings.CutPrefix(name, "shop/")
	if !ours {
		p := types.NewPackage(name, path.Base(name))
		p.MarkComplete()
		c.packages[name] = p
		return p, nil
	}
	names, err := filepath.Glob(filepath.Join(repo, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(c.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				c.functions[f.Name.Pos()] = f
				c.named[folder+"."+f.Name.Name] = append(c.named[folder+"."+f.Name.Name], f.Name.Pos())
			}
		}
	}
	conf := types.Config{Importer: c, Error: func(error) {}} // what is missing of other packages
	p, _ := conf.Check(name, c.fset, files, &types.Info{Uses: c.uses})
	c.packages[name] = p
	return p, nil
}

// follow returns the files with a function, type, field, constant or variable that the
// functions in from use, or that a function which they call uses. It does not follow functions in the files end.
func (c *code) follow(from, end []string) (reached []string, err error) {
	var next []token.Pos
	for _, name := range from {
		folder, _, _ := strings.Cut(name, ".")
		if _, err := c.Import("shop/" + folder); err != nil {
			return nil, err
		}
		if len(c.named[name]) == 0 {
			return nil, fmt.Errorf("no function %s", name)
		}
		next = append(next, c.named[name]...)
	}
	seen := map[token.Pos]bool{}
	for len(next) > 0 {
		pos := next[0]
		next = next[1:]
		if seen[pos] || !pos.IsValid() {
			continue
		}
		seen[pos] = true
		file := c.fset.Position(pos).Filename
		if !slices.Contains(reached, file) {
			reached = append(reached, file)
		}
		if f := c.functions[pos]; f != nil && !slices.Contains(end, file) {
			ast.Inspect(f, func(n ast.Node) bool {
				if name, is := n.(*ast.Ident); is && c.uses[name] != nil {
					next = append(next, c.uses[name].Pos())
				}
				return true
			})
		}
	}
	return reached, nil
}

// The negative control: each of these pages is wrong.
func TestReading_ReportsAWrongList(t *testing.T) {
	text, err := os.ReadFile("inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	c, page, from := newCode(), string(text), readings["inventory.md"].from
	for name, x := range map[string]struct{ old, new, want string }{
		"a file is missing":     {"[row.go](../inventory/row.go) |", "row |", "the path uses ../inventory/row.go, which is not listed"},
		"a file is not used":    {"[row.go](../inventory/row.go) |", "[naive.go](../inventory/naive.go) |", "the path does not use ../inventory/naive.go"},
		"an end is missing":     {"[keeper.go](../locking/keeper.go)", "keeper", "the path uses ../locking/keeper.go, which is not listed"},
		"an end is not reached": {"[keeper.go](../locking/keeper.go)", "[commit.go](../locking/commit.go)", "the path does not use ../locking/commit.go"},
		"a file does not exist": {"acquire.lua)", "no.lua)", "no.lua"},
		"a number is wrong":     {"17 files with", "16 files with", "the page says"},
		"there is no list":      {"| read |", "| see |", "the path uses ../inventory/inventory.go, which is not listed"},
	} {
		if !strings.Contains(page, x.old) {
			t.Errorf("%s: docs/inventory.md has no %q: this tests nothing", name, x.old)
		}
		if wrong, _ := reading(c, strings.ReplaceAll(page, x.old, x.new), from); !strings.Contains(strings.Join(wrong, "\n"), x.want) {
			t.Errorf("%s: %q, want %q", name, wrong, x.want)
		}
	}
	if wrong, _ := reading(c, page, []string{"inventory.Sell"}); len(wrong) != 1 || wrong[0] != "no function inventory.Sell" {
		t.Errorf("an entry that does not exist: %q", wrong)
	}
}
