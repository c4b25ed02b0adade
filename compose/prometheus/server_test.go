// SPDX-License-Identifier: MIT

package prometheus_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"shop/locking/locktest"
	"shop/locking/servertest/daemon"
)

// output is what a process has written so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// logged returns a field of the first line of the log with a message, "" if there is none yet.
func (o *output) logged(message, field string) string {
	for text := range strings.Lines(o.String()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == message {
			return fmt.Sprint(line[field])
		}
	}
	return ""
}

// start starts a process that is killed when the test ends.
func start(t *testing.T, env []string, program string, args ...string) *output {
	t.Helper()
	out := &output{}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := daemon.Spawn(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s %v:\n%s", program, args, lastLines(out.String()))
		}
	})
	return out
}

func lastLines(text string) string {
	const most = 4000
	return text[max(0, len(text)-most):]
}

// server is a running Prometheus.
type server struct {
	t   *testing.T
	url string
}

// startPrometheus starts it with prometheus.yaml and alerts.yaml, except for the times, and for the
// targets of each job.
func startPrometheus(t *testing.T, targets map[string]string) *server {
	t.Helper()
	dir := t.TempDir()
	var config map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "prometheus.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	config["global"] = map[string]string{"scrape_interval": "500ms", "evaluation_interval": "500ms"}
	for _, job := range config["scrape_configs"].([]any) {
		job := job.(map[string]any)
		address := targets[job["job_name"].(string)]
		if address == "" {
			t.Fatalf("prometheus.yaml has a job that this test does not know: %v", job)
		}
		job["static_configs"] = []any{map[string]any{"targets": []string{address}}}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"prometheus.yaml": string(text), "alerts.yaml": fast(read(t, "alerts.yaml"))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress(t)
	start(t, nil, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	p := &server{t, "http://" + address}
	locktest.Eventually(t, "Prometheus is ready", func() bool {
		res, err := client.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return p
}

// client fails a request to a server that accepts it and does not answer: the test must not hang.
var client = &http.Client{Timeout: 30 * time.Second}

// freeAddress returns an address whose port was free a moment ago: Prometheus does not tell which
// port it got.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// get reads the data of an answer of the HTTP API.
func (p *server) get(path string, query url.Values, data any) {
	p.t.Helper()
	res, err := client.Get(p.url + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Status != "success" {
		p.t.Fatalf("%s %s: %v %s", path, query, err, answer.Error)
	}
}

// hasData reports whether a query returns a number.
func (p *server) hasData(expr string) bool {
	p.t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	p.get("query", url.Values{"query": {expr}}, &data)
	for _, r := range data.Result {
		if n, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64); err == nil && !math.IsNaN(n) {
			return true
		}
	}
	return false
}

// fires reports whether an alert is firing for a lock store.
func (p *server) fires(name, store string) bool {
	p.t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	p.get("alerts", nil, &data)
	for _, a := range data.Alerts {
		if a.Labels["alertname"] == name && a.State == "firing" && (a.Labels["store"] == store || a.Labels["server"] == store) {
			return true
		}
	}
	return false
}

// awaitAlert calls again, if it is not nil, until the alert fires.
func (p *server) awaitAlert(name, store string, again func()) {
	p.t.Helper()
	begun := time.Now()
	locktest.Eventually(p.t, name+" fires", func() bool {
		if again != nil {
			again()
		}
		return p.fires(name, store)
	})
	p.t.Logf("%s fired %v after its fault", name, time.Since(begun).Round(100*time.Millisecond))
}
