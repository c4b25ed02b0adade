// SPDX-License-Identifier: MIT

package reference

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"shop/cmd/shop/api"
)

// The script is the file that npm's package has, as published: sha256sum package/dist/rapidoc-min.js.
const published = "affbd173a65e870e18f392cca963113bcdafb6e50e88cd2f6a834a65b22db94d"

func TestRapiDoc_IsTheFileOfItsPackage(t *testing.T) {
	compressed := must(files.Open("rapidoc/rapidoc-min.js.gz"))(t)
	defer compressed.Close()
	script := must(io.ReadAll(must(gzip.NewReader(compressed))(t)))(t)
	if sum := fmt.Sprintf("%x", sha256.Sum256(script)); sum != published {
		t.Errorf("its SHA-256 is %s, want %s", sum, published)
	}
	for name, want := range map[string]string{"LICENSE.txt": "MIT License", "rapidoc-min.js.LICENSE.txt": "RapiDoc 9.3.8"} {
		if text := string(must(os.ReadFile(filepath.Join("rapidoc", name)))(t)); !strings.Contains(text, want) {
			t.Errorf("%s does not say %q", name, want)
		}
	}
}

// serve serves the reference, and records the paths that are requested beside it.
func serve(t *testing.T) (url string, others func() []string) {
	t.Helper()
	r := New(must(api.Document())(t))
	var mu sync.Mutex
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.Serves(req.URL.Path) {
			mu.Lock()
			defer mu.Unlock()
			paths = append(paths, req.URL.Path)
			http.NotFound(w, req)
			return
		}
		r.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(paths)
	}
}

func TestReference_EachFileHasItsHeaders(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	for path, kind := range map[string]string{
		"/openapi.json": "application/json", "/docs": "text/html", "/docs/page.js": "text/javascript",
		"/docs/page.css": "text/css", "/docs/rapidoc.js": "text/javascript",
	} {
		res := must(http.Get(url + path))(t) // the client decompresses
		body := must(io.ReadAll(res.Body))(t)
		res.Body.Close()
		if got := res.Header.Get("Content-Type"); res.StatusCode != 200 || !strings.HasPrefix(got, kind) || len(body) < 50 {
			t.Errorf("%s: %d, %s, %d bytes", path, res.StatusCode, got, len(body))
		}
		if res.Header.Get("Content-Security-Policy") != policy || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, res.Header)
		}
		req := must(http.NewRequest("GET", url+path, nil))(t)
		req.Header.Set("If-None-Match", res.Header.Get("ETag"))
		again := must(http.DefaultClient.Do(req))(t)
		again.Body.Close()
		if again.StatusCode != 304 {
			t.Errorf("%s again: %d", path, again.StatusCode)
		}
	}
	res := must(http.Post(url+"/docs", "text/plain", strings.NewReader("x")))(t)
	defer res.Body.Close()
	if res.StatusCode != 405 || res.Header.Get("Allow") == "" {
		t.Errorf("POST: %d %v", res.StatusCode, res.Header)
	}
}

// As TestAdmission_NothingFollowsABodyOfTwoLengths of the API.
func TestReference_NothingFollowsABody(t *testing.T) {
	t.Parallel()
	url, others := serve(t)
	conn := must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(t)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /docs HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: shop\r\n\r\n")
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	res := must(http.ReadResponse(reader, nil))(t)
	must(io.Copy(io.Discard, res.Body))(t)
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 || !res.Close || len(others()) > 0 {
		t.Errorf("after the reply: %q, %v; others %v", rest, err, others())
	}
}

// all returns the text that the page shows, including what is in shadow trees.
const all = `(function text(node) {
	return [...node.childNodes].map(c => c.nodeType == 3 ? c.data : ["STYLE", "SCRIPT"].includes(c.tagName) ? "" : text(c)).join(" ") + (node.shadowRoot ? text(node.shadowRoot) : "")
})(document.body)`

func TestPage_ShowsEveryOperationAndLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	url, others := serve(t)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))...)
	defer stop()
	tab, closeTab := chromedp.NewContext(allocator)
	defer closeTab()
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1280, 900)); err != nil {
		t.Fatalf("chromium: %v\nis it installed? apt-get install chromium", err)
	}
	ctx, cancel := context.WithTimeout(tab, time.Minute)
	defer cancel()
	defer func() {
		if err := chromedp.Cancel(tab); err != nil {
			t.Error(err)
		}
	}()
	prefer := func(scheme string) {
		t.Helper()
		must(chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		}))(t)
	}
	prefer("dark")
	if err := chromedp.Do(ctx, chromedp.Navigate(url+"/docs")); err != nil {
		t.Fatal(err)
	}
	text := ""
	for ctx.Err() == nil && !strings.Contains(text, "/v1/audit") {
		text = must(chromedp.Run(ctx, chromedp.Evaluate[string](all)))(t)
	}
	spec := must(api.GetSpec())(t)
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			if !strings.Contains(text, path) || !strings.Contains(text, op.Summary) {
				t.Errorf("%s %s is not shown", method, path)
			}
		}
	}
	theme := `document.querySelector("rapi-doc").getAttribute("theme")`
	if got := must(chromedp.Run(ctx, chromedp.Evaluate[string](theme)))(t); got != "dark" {
		t.Errorf("in the dark: %s", got)
	}
	shoot(t, ctx, "reference-dark")
	prefer("light")
	for got := "dark"; got != "light"; got = must(chromedp.Run(ctx, chromedp.Evaluate[string](theme)))(t) { // until ctx ends
	}
	shoot(t, ctx, "reference-light")
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(360, 740)); err != nil {
		t.Fatal(err)
	}
	if width := must(chromedp.Run(ctx, chromedp.Evaluate[int](`document.documentElement.scrollWidth`)))(t); width > 360 {
		t.Errorf("%d pixels wide on a phone of 360", width)
	}
	shoot(t, ctx, "reference-phone")
	loaded := must(chromedp.Run(ctx, chromedp.Evaluate[[]string](`performance.getEntriesByType("resource").map(e => e.name)`)))(t)
	for _, address := range loaded {
		if !strings.HasPrefix(address, url) && !strings.HasPrefix(address, "data:") {
			t.Errorf("it loads %s", address)
		}
	}
	if len(loaded) < 4 || len(others()) > 0 {
		t.Errorf("it loads %v, and %v which is not served", loaded, others())
	}
}

// shoot writes a screenshot into the folder SHOP_SCREENSHOTS, if it is set.
func shoot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	if folder := os.Getenv("SHOP_SCREENSHOTS"); folder != "" {
		png := must(chromedp.Run(ctx, chromedp.FullScreenshot(100)))(t)
		if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
