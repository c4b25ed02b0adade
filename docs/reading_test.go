// SPDX-License-Identifier: MIT

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

// list is a reading list: the tables of one section of a page.
type list struct {
	page, heading      string
	filesMax, linesMax int      // of the path up to the interface locking.Store, without the lock store behind it
	from               []string // where the path begins, and what it calls through an interface or a table
	lock               *list    // of the lock store that the path calls: a part with a list of its own
}

// scenario is the path of one scenario of the proof, which the comment of package loadtest lists.
var scenario = list{"../loadtest/doc.go", "Read one scenario", 20, 4600, []string{
	"loadtest/prove.main", "loadtest/scenario/inventory.New", "loadtest/fault/redisfault.LockLost.Inject",
}, nil}

var (
	redisLock = list{"copying.md", "A Redis lock in front", 14, 2000, []string{
		"locking.Do", "locking/driver.Acquire", "locking/driver.Renew", "locking/driver.Release",
		"locking/redislock.Take", "locking/redislock.Keep", "locking/redislock.Free",
	}, nil}
	etcdLock = list{"copying.md", "An etcd lease", 13, 1900, []string{
		"locking/driver.Acquire", "locking/driver.Renew", "locking/driver.Release",
		"locking/etcdlock.Take", "locking/etcdlock.Keep", "locking/etcdlock.Free",
	}, nil}
	purchase = list{"inventory.md", "Read the code", 17, 1800, []string{
		"inventory.Buy", "inventory.redisRow",
	}, &redisLock}
	fencedTransfer = list{"transfer.md", "Read the code", 20, 2200, []string{
		"transfer.Transfer", "transfer.etcdFenced",
	}, &etcdLock}
)

func TestPages_ReadingListIsThePathAndShort(t *testing.T) {
	c := newCode()
	for _, l := range []list{purchase, fencedTransfer, redisLock, etcdLock, scenario} {
		section, err := l.section()
		if err != nil {
			t.Fatal(err)
		}
		wrong, has := l.check(c, section)
		for _, w := range wrong {
			t.Errorf("docs/%s, %s: %s", l.page, l.heading, w)
		}
		t.Logf("docs/%s, %s: %v", l.page, l.heading, has)
	}
}

// section returns the part of the page from the list's heading to the next one.
func (l list) section() (string, error) {
	text, err := os.ReadFile(l.page)
	if err != nil {
		return "", err
	}
	mark := "\n## "
	if strings.HasSuffix(l.page, ".go") {
		mark = "\n// # "
	}
	_, section, found := strings.Cut(string(text), mark+l.heading)
	if !found {
		return "", fmt.Errorf("docs/%s has no heading %q", l.page, l.heading)
	}
	section, _, _ = strings.Cut(section, mark)
	return section, nil
}

// files returns the files to read, and those where the path ends: of a folder, all that are not read.
func (l list) files(section string) (read, left []string) {
	if !strings.HasSuffix(l.page, ".go") {
		return linked(section, "| read |"), linked(section, "| not read |")
	}
	for i, part := range strings.SplitN(section, "\n// Not read", 2) {
		for line := range strings.Lines(part) {
			if row, is := strings.CutPrefix(line, "//\t"); is {
				names, _, _ := strings.Cut(strings.TrimRight(row, "\n"), "  ")
				for _, name := range strings.Split(names, ", ") {
					if name = filepath.Join(filepath.Dir(l.page), name); i == 0 {
						read = append(read, name)
					} else {
						left = append(left, name)
					}
				}
			}
		}
	}
	return read, left
}

// within reports whether a file is in the list, or in a folder that is in the list.
func within(files []string, file string) bool {
	return slices.ContainsFunc(files, func(known string) bool {
		return known == file || strings.HasPrefix(file, known+"/")
	})
}

// check compares the list with what the functions in from call, and its numbers with the
// files: first those of the list, then those of the list and the lock store's together.
func (l list) check(c *code, section string) (wrong []string, has []size) {
	read, left := l.files(section)
	reached, err := c.follow(l.from, func(file string) bool { return !slices.Contains(read, file) && within(left, file) })
	if err != nil {
		return []string{err.Error()}, nil
	}
	for _, file := range reached {
		if !slices.Contains(read, file) && !within(left, file) {
			wrong = append(wrong, "the path uses "+file+", which is not listed")
		}
	}
	for _, file := range slices.Concat(read, left) {
		if strings.HasSuffix(file, ".go") && !slices.Contains(reached, file) {
			wrong = append(wrong, "the path does not use "+file)
		}
	}
	sets := [][]string{read}
	if l.lock != nil {
		lock, err := l.lock.section()
		if err != nil {
			return append(wrong, err.Error()), nil
		}
		sets = append(sets, slices.Compact(slices.Sorted(slices.Values(slices.Concat(read, linked(lock, "| read |"))))))
	}
	for _, files := range sets {
		var sum size
		for _, file := range files {
			if err := sum.add(file); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
		has = append(has, sum)
	}
	if has[0].files > l.filesMax || has[0].lines > l.linesMax {
		wrong = append(wrong, fmt.Sprintf("%v to read, want %d files and %d lines at most", has[0], l.filesMax, l.linesMax))
	}
	if said := stated(section); !slices.EqualFunc(said, has, near) {
		wrong = append(wrong, fmt.Sprintf("the page says %v, the files are %v", said, has))
	}
	return wrong, has
}

// size is how much there is to read.
type size struct{ files, lines, code int }

func (s size) String() string {
	return fmt.Sprintf("%d files with %d lines, %d of them code", s.files, s.lines, s.code)
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
func stated(page string) (all []size) {
	for _, m := range sizeText.FindAllStringSubmatch(strings.Join(strings.Fields(strings.ReplaceAll(page, "\n//", "\n")), " "), -1) {
		var n [3]int
		for i := range n {
			n[i], _ = strconv.Atoi(strings.ReplaceAll(m[i+1], ",", ""))
		}
		all = append(all, size{n[0], n[1], n[2]})
	}
	return all
}

// near reports whether the files are the same number, and lines and code differ by at most 3 %.
func near(a, b size) bool {
	return a.files == b.files && 100*max(a.lines-b.lines, b.lines-a.lines) <= 3*b.lines &&
		100*max(a.code-b.code, b.code-a.code) <= 3*b.code
}

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
	named     map[string][]token.Pos      // by folder and name, of a method also with its type
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
				for _, name := range []string{folder + "." + f.Name.Name, folder + "." + receiver(f) + f.Name.Name} {
					c.named[name] = append(c.named[name], f.Name.Pos())
				}
			}
		}
	}
	conf := types.Config{Importer: c, Error: func(error) {}} // what is missing of other packages
	p, _ := conf.Check(name, c.fset, files, &types.Info{Uses: c.uses})
	c.packages[name] = p
	return p, nil
}

// receiver returns the type of which f is a method, and a dot.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if pointer, is := of.(*ast.StarExpr); is {
		of = pointer.X
	}
	if name, is := of.(*ast.Ident); is {
		return name.Name + "."
	}
	return ""
}

// follow returns the files with a function, type, field, constant or variable that the
// functions in from use, or that a function which they call uses. It does not follow functions of files where the path ends.
func (c *code) follow(from []string, ends func(file string) bool) (reached []string, err error) {
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
		if f := c.functions[pos]; f != nil && !ends(file) {
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
	section, err := purchase.section()
	if err != nil {
		t.Fatal(err)
	}
	c := newCode()
	for name, x := range map[string]struct{ old, new, want string }{
		"a file is missing":     {"[row.go](../inventory/row.go) |", "row |", "the path uses ../inventory/row.go, which is not listed"},
		"a file is not used":    {"[row.go](../inventory/row.go) |", "[naive.go](../inventory/naive.go) |", "the path does not use ../inventory/naive.go"},
		"an end is missing":     {"[keeper.go](../locking/keeper.go)", "keeper", "the path uses ../locking/keeper.go, which is not listed"},
		"an end is not reached": {"[keeper.go](../locking/keeper.go)", "[commit.go](../locking/commit.go)", "the path does not use ../locking/commit.go"},
		"a file does not exist": {"[row.go](../inventory/row.go) |", "[no.go](../inventory/no.go) |", "open ../inventory/no.go"},
		"a number is wrong":     {" files with about 1,", " files with about 2,", "the page says"},
		"the sum is missing":    {"22 files with", "files with", "the page says"},
		"there is no list":      {"| read |", "| see |", "the path uses ../inventory/inventory.go, which is not listed"},
	} {
		if !strings.Contains(section, x.old) {
			t.Errorf("%s: docs/inventory.md has no %q: this tests nothing", name, x.old)
		}
		changed := strings.ReplaceAll(section, x.old, x.new)
		if wrong, _ := purchase.check(c, changed); !strings.Contains(strings.Join(wrong, "\n"), x.want) {
			t.Errorf("%s: %q, want %q", name, wrong, x.want)
		}
	}
	comment, err := scenario.section()
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(comment, ", shown.go", "")
	if wrong, _ := scenario.check(c, changed); changed == comment || len(wrong) != 1 || wrong[0] != "the path uses ../loadtest/shown.go, which is not listed" {
		t.Errorf("a file of a Go comment is missing: %q", wrong)
	}
	for name, x := range map[string]struct {
		change func(*list)
		want   string
	}{
		"too many files":               {func(l *list) { l.filesMax = 5 }, "want 5 files"},
		"too many lines":               {func(l *list) { l.linesMax = 1000 }, "and 1000 lines at most"},
		"an entry that does not exist": {func(l *list) { l.from = []string{"inventory.Sell"} }, "no function inventory.Sell"},
	} {
		l := purchase
		x.change(&l)
		if wrong, _ := l.check(c, section); len(wrong) != 1 || !strings.Contains(wrong[0], x.want) {
			t.Errorf("%s: %q, want %q", name, wrong, x.want)
		}
	}
}
