// SPDX-License-Identifier: MIT

package wrong

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// lab lists the files that may import a wrong lock: the lab offers it as a negative control.
var lab = []string{"cmd/shop/lab/money.go"}

// Only tests and the lab import a package of this folder.
func TestImports_OnlyTestsAndTheLab(t *testing.T) {
	t.Parallel()
	const root = "../.."
	importers := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if strings.HasSuffix(name, "locking/wrong") || strings.Contains(name, "locking/wrong/") {
				importer, err := filepath.Rel(root, path)
				if err != nil {
					return err
				}
				importers[filepath.ToSlash(importer)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(importers)); !slices.Equal(got, lab) {
		t.Errorf("%q import a wrong lock, want only the lab: %q", got, lab)
	}
}
