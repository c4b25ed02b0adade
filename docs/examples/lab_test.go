// SPDX-License-Identifier: MIT

package examples

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/servertest"
)

// lab is a replica in lab mode, and the environment of a shell beside it.
type lab struct {
	t            *testing.T
	env          []string
	root         string // a folder with bin, as the root of the repository
	api, metrics string
}

var (
	metricSpan = regexp.MustCompile("`([a-z]+(?:_[a-z]+)*_(?:total|seconds|open))`")
	metricRow  = regexp.MustCompile("(?m)^\\| ((?:`[a-z_]+`(?:, )?)+) \\|")
	kindSpan   = regexp.MustCompile("`kind=\"([a-z_]+)\"`")
	inlineCode = regexp.MustCompile("`([^`]+)`")
)

// metricsExist checks that a replica has the metrics that docs/operations.md names.
func (r *lab) metricsExist(t *testing.T) {
	t.Helper()
	response, err := http.Get(r.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	named, missing := metricsNamed(read(t, "docs/operations.md"), string(text))
	if named < 30 {
		t.Errorf("%d metrics and kinds are named: this tests nothing", named)
	}
	for _, name := range missing {
		t.Errorf("a replica has no %s", name)
	}
}

// metricsNamed counts the metrics and kinds of events that a page names, and returns those that are not in metrics,
// the text of a replica.
func metricsNamed(page, metrics string) (named int, missing []string) {
	all := metricSpan.FindAllStringSubmatch(page, -1)
	_, table, _ := strings.Cut(page, "| metric | labels | what |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range metricRow.FindAllStringSubmatch(table, -1) {
		all = append(all, inlineCode.FindAllStringSubmatch(row[1], -1)...)
	}
	for _, m := range all {
		if !strings.Contains(metrics, "# TYPE "+m[1]+" ") {
			missing = append(missing, m[1])
		}
	}
	kinds := kindSpan.FindAllStringSubmatch(page, -1)
	for _, m := range kinds {
		if !strings.Contains(metrics, `kind="`+m[1]+`"`) {
			missing = append(missing, "kind "+m[1])
		}
	}
	return len(all) + len(kinds), missing
}

// The negative control.
func TestMetricsNamed_NoticesWhatIsMissing(t *testing.T) {
	const metrics = "# TYPE a_total counter\na_total{kind=\"lost\"} 0\n# TYPE queue_length gauge\n"
	for page, want := range map[string]string{
		"`a_total` and `kind=\"lost\"`": "", "`b_total`": "b_total", "`kind=\"found\"`": "kind found",
		"| metric | labels | what |\n|---|---|---|\n| `queue_length`, `queue_width` | | |\n\n": "queue_width",
	} {
		if named, missing := metricsNamed(page, metrics); named == 0 || strings.Join(missing, ", ") != want {
			t.Errorf("%s: %d named, missing %q, want %q", page, named, missing, want)
		}
	}
}

// bin is the folder of shop and local, which built makes and TestMain removes; "": no test needed it.
var bin string

// built builds them once for all tests.
var built = sync.OnceValue(func() (err error) {
	if bin, err = os.MkdirTemp("", "examples"); err != nil {
		return err
	}
	if out, err := exec.Command("go", "build", "-o", bin+"/", "shop/cmd/shop", "shop/compose/local").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	if bin != "" {
		_ = os.RemoveAll(bin)
	}
	os.Exit(status)
}

// startLab starts what `make run` starts, on free ports, with data of its own.
func startLab(t *testing.T) *lab {
	t.Helper()
	if err := built(); err != nil {
		t.Fatal(err)
	}
	mongo, err := url.Parse(servertest.Env(t, "SHOP_MONGO_URL"))
	if err != nil {
		t.Fatal(err)
	}
	mongo.Path = "/typed_" + strings.ToLower(rand.Text())
	r := &lab{t: t, root: t.TempDir(), env: append(os.Environ(), "SHOP_POSTGRES_URL="+pgtest.Schema(t), "SHOP_MONGO_URL="+mongo.String(),
		"SHOP_LOCK_PREFIX="+rand.Text(), "SHOP_LISTEN=127.0.0.1:0", "SHOP_METRICS_LISTEN=127.0.0.1:0")}
	if err := os.Symlink(bin, filepath.Join(r.root, "bin")); err != nil {
		t.Fatal(err)
	}
	r.shop(filepath.Join(bin, "shop"), "migrate")
	for exported := range strings.Lines(r.shop(filepath.Join(bin, "shop"), "seed")) {
		if setting, is := strings.CutPrefix(strings.TrimSpace(exported), "export "); is {
			r.env = append(r.env, strings.NewReplacer("'", "", `"`, "").Replace(setting))
		}
	}
	r.serve(filepath.Join(bin, "shop"))
	return r
}

func (r *lab) shop(program, command string) string {
	r.t.Helper()
	run := exec.CommandContext(r.t.Context(), program, command)
	run.Env = r.env
	var stderr strings.Builder
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		r.t.Fatalf("shop %s: %v\n%s", command, err, &stderr)
	}
	return string(out)
}

// serve starts a replica, reads its addresses from its log, and ends it with the test.
func (r *lab) serve(program string) {
	r.t.Helper()
	replica := exec.Command(program, "serve", "--lab")
	replica.Env = r.env
	log, err := replica.StderrPipe()
	if err := errors.Join(err, replica.Start()); err != nil {
		r.t.Fatal(err)
	}
	serving := make(chan [2]string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var line struct{ Msg, Address, Metrics string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				serving <- [2]string{line.Address, line.Metrics}
			}
		}
	})
	r.t.Cleanup(func() {
		_ = replica.Process.Signal(syscall.SIGTERM)
		reading.Wait()
		if err := replica.Wait(); err != nil {
			r.t.Errorf("shop serve: %v", err)
		}
	})
	select {
	case at := <-serving:
		r.api, r.metrics = "http://"+at[0], "http://"+at[1]
	case <-time.After(time.Minute):
		r.t.Fatal("shop serve: not serving after a minute")
	}
}
