// SPDX-License-Identifier: MIT

package lab

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"

	"shop/docs"
)

// Checkout returns the files of the repository if this process was started at its root, else nil.
func Checkout() fs.FS {
	root, err := os.OpenRoot(".") // no path and no link leads out of it
	if err != nil {
		return nil
	}
	mod, err := fs.ReadFile(root.FS(), "go.mod")
	if err != nil || !bytes.HasPrefix(mod, []byte("module shop\n")) {
		_ = root.Close()
		return nil
	}
	return root.FS()
}

// linked are the files that docs/patterns.md links to. No other file is served.
var linked = sync.OnceValue(func() (files []string) {
	for _, link := range regexp.MustCompile(`\]\(\.\./([^)#]+)`).FindAllSubmatch(docs.Patterns, -1) {
		if name := path.Clean(string(link[1])); path.Ext(name) != "" { // not a folder
			files = append(files, name)
		}
	}
	return files
})

// code shows a file that the page of patterns links to.
func (l *Lab) code(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("path")
	if l.cfg.Sources == nil || !slices.Contains(linked(), name) {
		fail(w, http.StatusNotFound, fmt.Errorf("%q is not a file that the page of patterns links to, or the server was not started at the root of the repository", name))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	http.ServeFileFS(w, r, l.cfg.Sources, name)
}

// sourceLinks renders a link to a file of the repository as its text and its path. The path is a link if the server has the
// files. It does not know where else a reader has them, and a wrong base URL would make each link a dead one.
type sourceLinks struct{ served bool }

func (s sourceLinks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindLink, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		to := string(n.(*ast.Link).Destination)
		if strings.HasPrefix(to, "#") { // on the page itself
			if entering {
				fmt.Fprintf(w, `<a href="%s">`, template.HTMLEscapeString(to))
			} else {
				fmt.Fprint(w, "</a>")
			}
			return ast.WalkContinue, nil
		}
		if entering {
			return ast.WalkContinue, nil
		}
		name := strings.TrimPrefix(to, "../")
		shown := template.HTMLEscapeString(name)
		if file, _, _ := strings.Cut(name, "#"); s.served && slices.Contains(linked(), file) {
			fmt.Fprintf(w, ` <a class="path" href="/lab/code/%s">%s</a>`, template.HTMLEscapeString(file), shown)
		} else {
			fmt.Fprintf(w, ` <code class="path">%s</code>`, shown)
		}
		return ast.WalkContinue, nil
	})
}
