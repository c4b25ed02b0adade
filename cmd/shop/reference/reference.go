// SPDX-License-Identifier: MIT

package reference

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"strings"
	"time"
)

//go:embed page.html page.css page.js rapidoc/rapidoc-min.js.gz
var files embed.FS

const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is one reply.
type file struct {
	kind string // its Content-Type
	body []byte
	gzip bool // body is compressed
	etag string
}

// Reference serves the page. It is an http.Handler for the paths for which Serves returns true.
type Reference map[string]file

// New returns the page of an OpenAPI document in JSON.
func New(spec []byte) Reference {
	r := Reference{"/openapi.json": {kind: "application/json", body: spec}}
	for path, f := range map[string]struct{ name, kind string }{
		"/docs":            {"page.html", "text/html; charset=utf-8"},
		"/docs/page.css":   {"page.css", "text/css; charset=utf-8"},
		"/docs/page.js":    {"page.js", "text/javascript; charset=utf-8"},
		"/docs/rapidoc.js": {"rapidoc/rapidoc-min.js.gz", "text/javascript; charset=utf-8"},
	} {
		body, err := files.ReadFile(f.name)
		if err != nil {
			panic(err) // not embedded
		}
		r[path] = file{kind: f.kind, body: body, gzip: strings.HasSuffix(f.name, ".gz")}
	}
	for path, f := range r {
		f.etag = fmt.Sprintf(`"%x"`, sha256.Sum256(f.body))
		r[path] = f
	}
	return r
}

// Serves reports whether a path belongs to the reference.
func (r Reference) Serves(path string) bool {
	_, found := r[path]
	return found
}

func (r Reference) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	f, h := r[req.URL.Path], w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // asks with the ETag first
	if req.ContentLength != 0 {
		h.Set("Connection", "close") // what follows a body of two lengths is not read as a request
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "GET this page", http.StatusMethodNotAllowed)
		return
	}
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.etag)
	if f.gzip { // all browsers take it; compressing or decompressing here would cost each request CPU time
		h.Set("Content-Encoding", "gzip")
	}
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(f.body))
}
