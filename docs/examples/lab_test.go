package examples

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
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
	"shop/locking/locktest"
)

// lab is a replica in lab mode, and the environment of a shell beside it.
type lab struct {
	t            *testing.T
	env          []string
	api, metrics string
}

var (
	metricSpan = regexp.MustCompile("`([a-z]+(?:_[a-z]+)*_(?:total|seconds|open|in_flight))`")
	kindSpan   = regexp.MustCompile("`kind=\"([a-z_]+)\"`")
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
	page := read(t, "docs/operations.md")
	metrics, kinds := metricSpan.FindAllStringSubmatch(page, -1), kindSpan.FindAllStringSubmatch(page, -1)
	if len(metrics) < 8 || len(kinds) < 4 {
		t.Errorf("%d metrics and %d kinds are named: this tests nothing", len(metrics), len(kinds))
	}
	for _, m := range metrics {
		if !strings.Contains(string(text), "# TYPE "+m[1]+" ") {
			t.Errorf("a replica has no metric %s", m[1])
		}
	}
	for _, m := range kinds {
		if !strings.Contains(string(text), `kind="`+m[1]+`"`) {
			t.Errorf("a replica counts no event of kind %s", m[1])
		}
	}
}

// startLab builds the shop and starts what `make run` starts, on free ports, with data of its own.
func startLab(t *testing.T) *lab {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	if out, err := exec.Command("go", "build", "-o", bin+"/", "shop/cmd/shop").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mongo, err := url.Parse(locktest.Env(t, "SHOP_MONGO_URL"))
	if err != nil {
		t.Fatal(err)
	}
	mongo.Path = "/typed_" + strings.ToLower(rand.Text())
	r := &lab{t: t, env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "SHOP_POSTGRES_URL="+pgtest.Schema(t), "SHOP_MONGO_URL="+mongo.String(),
		"SHOP_LOCK_PREFIX="+rand.Text(), "SHOP_LISTEN=127.0.0.1:0", "SHOP_METRICS_LISTEN=127.0.0.1:0")}
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
