// SPDX-License-Identifier: MIT

package lab

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/docs"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/servertest"
	"shop/wallet/mongotest"
)

// servePatterns is a Lab with all stores, whose measurements are short.
func servePatterns(t *testing.T) *served {
	t.Helper()
	s := serve(t, func(cfg *Config) {
		cfg.EtcdEndpoints = strings.Split(servertest.Env(t, "SHOP_ETCD_ENDPOINTS"), ",")
		_, cfg.MongoURL = mongotest.Database(t, servertest.Env(t, "SHOP_MONGO_URL"))
		t.Cleanup(func() { dropPatterns(t, cfg.PostgresURL) })
	})
	s.lab.measureTime = 20 * time.Millisecond
	return s
}

func dropPatterns(t testing.TB, databaseURL string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, name := range []string{"_patterns", "_patterns_inventory", "_patterns_transfer"} {
		schema := pgx.Identifier{conn.Config().RuntimeParams["search_path"] + name}.Sanitize()
		if _, err := conn.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
	}
}

func TestPatterns_ThePageIsTheDocumentAndEachMeasurementHasItsRow(t *testing.T) {
	t.Parallel()
	page := servePatterns(t).text("/lab/patterns")
	for _, m := range measurements {
		if n := strings.Count(page, `data-measure="`+m.Name+`"`); n != 1 {
			t.Errorf("%d rows for %s", n, m.Name)
		}
	}
	headings := bytes.Count(docs.Patterns, []byte("\n### "))
	if n := strings.Count(page, "On this machine: ") + strings.Count(page, "data-measure="); headings < 60 || n != headings {
		t.Errorf("%d measurements and reasons on the page, %d patterns in the document", n, headings)
	}
	// A6 has its own measurement, its code as a path, and no link.
	a6 := regexp.MustCompile(`(?s)<h3 id="a6-.*?<h3`).FindString(page)
	if !strings.Contains(a6, `data-measure="row"`) || !strings.Contains(a6, `LockRow <code class="path">locking/pglock/xact.go</code>`) {
		t.Errorf("A6 is %s", a6)
	}
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, ` id="`+link[1]+`"`) {
			t.Errorf("a link leads to #%s, which is not on the page", link[1])
		}
	}
	if strings.Contains(page, `href="..`) || strings.Contains(page, "| ") {
		t.Error("the page has relative links, or a table that is none")
	}
}

// Each pattern has a measurement, or a reason why there is none, and never both.
func TestRenderPatterns_ARowWithoutEitherOrWithBothIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := renderPatterns(docs.Patterns, measurements, unmeasured, sourceLinks{}); err != nil {
		t.Fatal(err)
	}
	without, both := maps.Clone(unmeasured), maps.Clone(unmeasured)
	delete(without, "C11")
	both["A6"] = "…"
	nowhere, late := maps.Clone(unmeasured), append(slices.Clone(measurements), measurement{Name: "lost", Row: "Z9"})
	nowhere["Z8"] = "…"
	for want, wrong := range map[string]struct {
		list    []measurement
		reasons map[string]string
	}{
		"C11": {measurements, without},
		"A6":  {measurements, both},
		"Z8":  {measurements, nowhere},
		"Z9":  {late, unmeasured},
		"A1":  {nil, unmeasured},
	} {
		if _, err := renderPatterns(docs.Patterns, wrong.list, wrong.reasons, sourceLinks{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

func TestMeasure_EachLockInItsStore(t *testing.T) {
	t.Parallel()
	s := servePatterns(t)
	for _, m := range measurements {
		var answer struct {
			measured
			Error string
		}
		res := s.send("POST", "/lab/patterns/"+m.Name, "", &answer)
		if res.StatusCode != http.StatusOK || answer.Median <= 0 || answer.Count < 1 || answer.PerSecond <= 0 {
			t.Errorf("%s: %s %+v", m.Name, res.Status, answer)
		}
		t.Logf("%s: %.0f µs, %.0f per second, of %d", m.Name, answer.Median, answer.PerSecond, answer.Count)
	}
}

// In a checkout each link to code leads to its file, and to no other file. Elsewhere the page has paths.
func TestPatterns_LinksToCode(t *testing.T) {
	t.Parallel()
	with, without := serve(t, func(cfg *Config) { cfg.Sources = os.DirFS("../../..") }), serve(t)
	links := regexp.MustCompile(`href="(/lab/code/[^"]+)"`).FindAllStringSubmatch(with.text("/lab/patterns"), -1)
	if len(links) < 50 {
		t.Errorf("%d links to code", len(links))
	}
	for _, link := range links {
		res := with.send("GET", link[1], "", nil)
		if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || kind != "text/plain; charset=utf-8" {
			t.Errorf("%s: %s %s", link[1], res.Status, kind)
		}
	}
	for _, path := range []string{"go.mod", "../shop/main.go", "locking", ".git/config"} {
		if res := with.send("GET", "/lab/code/"+path, "", nil); res.StatusCode == http.StatusOK {
			t.Errorf("%s is served", path)
		}
	}
	if page := without.text("/lab/patterns"); strings.Contains(page, "/lab/code/") || !strings.Contains(page, `<code class="path">locking/`) {
		t.Error("without the files the page has links to them, or no paths")
	}
	if res := without.send("GET", links[0][1], "", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("without the files: %s", res.Status)
	}
	if Checkout() != nil {
		t.Error("the folder of this package is taken for the root of the repository")
	}
}

func TestMeasure_RefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := serve(t, func(cfg *Config) { cfg.RedisURL, cfg.EtcdEndpoints, cfg.MongoURL = "redis://127.0.0.1:1/0", nil, "" })
	refused := func(name string, status int, want string) {
		t.Helper()
		var answer struct{ Error string }
		if res := s.send("POST", "/lab/patterns/"+name, "", &answer); res.StatusCode != status || !strings.Contains(answer.Error, want) {
			t.Errorf("%s: %s %q, want %d %q", name, res.Status, answer.Error, status, want)
		}
	}
	refused("hope", http.StatusNotFound, `no measurement "hope"`)
	refused("etcd", http.StatusServiceUnavailable, "--etcd-endpoints")
	refused("mongo", http.StatusServiceUnavailable, "--mongo-url")
	refused("redis", http.StatusServiceUnavailable, "no figure: Redis failed, is it there?")
	if !s.lab.reserve() { // as a race does, or another measurement
		t.Fatal("a failed measurement has not ended")
	}
	refused("advisory", http.StatusConflict, "is running")
	s.lab.release()
	s.lab.work.Done()
	s.wantOwnOrigin("/lab/patterns/advisory", "")
	s.lab.Stop()
	refused("advisory", http.StatusConflict, "")
}

// BenchmarkPatterns measures each pattern as the page does, for make costs. Its figure is the median of the pairs.
func BenchmarkPatterns(b *testing.B) {
	cfg := Config{
		PostgresURL: pgtest.Schema(b), RedisURL: servertest.Env(b, "SHOP_REDIS_URL"), LockPrefix: "costs",
		EtcdEndpoints: strings.Split(servertest.Env(b, "SHOP_ETCD_ENDPOINTS"), ","),
	}
	_, cfg.MongoURL = mongotest.Database(b, servertest.Env(b, "SHOP_MONGO_URL"))
	b.Cleanup(func() { dropPatterns(b, cfg.PostgresURL) })
	for _, m := range measurements {
		b.Run(m.Row, func(b *testing.B) {
			var result measured
			for b.Loop() { // once, with -benchtime 1x: a measurement repeats itself
				var err error
				if result, err = m.run(b.Context(), cfg, time.Second); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(result.Median, "µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}
