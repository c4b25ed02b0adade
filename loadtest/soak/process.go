// SPDX-License-Identifier: MIT

package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const mebibyte = 1 << 20

// Process reads a process of the service. pid may return another id later: a batch that exited is
// started again. metrics is the address of its /metrics; "": it has none.
func Process(name string, pid func() int, metrics string) Source {
	const status = "/proc/PID/status"
	s := Source{Gauges: []Gauge{
		{Name: name + ": memory", Unit: "MiB", From: status, Share: 0.15, Slack: 16},
		{Name: name + ": threads", From: status, Share: 0.25, Slack: 8, Steps: true},
		{Name: name + ": open files", From: "/proc/PID/fd", Share: 0.1, Slack: 10, Steps: true},
	}}
	if metrics != "" {
		s.Gauges = append(s.Gauges, Gauge{Name: name + ": goroutines", From: "its /metrics", Share: 0.1, Slack: 20, Steps: true, Back: true})
	}
	s.Read = func(ctx context.Context) ([]float64, error) {
		values, err := readProcess(pid())
		if err != nil || metrics == "" {
			return values, err
		}
		counts, err := scrape(ctx, "http://"+metrics+"/metrics", "go_goroutines")
		return append(values, counts...), err
	}
	return s
}

// Generator reads the process that sends the load and checks it. Its memory holds the history of a
// shift until the garbage collector frees it, so its tolerance is larger.
func Generator(name string, pid func() int) Source {
	s := Process(name, pid, "")
	s.Gauges[0].Share, s.Gauges[0].Slack = 0.5, 64
	s.Gauges[2].Slack = 200 // a connection to a replica for each request under way
	return s
}

// readProcess reads memory, threads and open files.
func readProcess(pid int) ([]float64, error) {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(filepath.Join(folder, "fd"))
	if err != nil {
		return nil, err
	}
	kibibytes, missing := statusField(text, "VmRSS")
	threads, also := statusField(text, "Threads")
	return []float64{kibibytes * 1024 / mebibyte, threads, float64(len(files))}, errors.Join(missing, also)
}

// statusField returns a number from /proc/PID/status.
func statusField(text []byte, name string) (float64, error) {
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if key == name {
			return strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		}
	}
	return 0, fmt.Errorf("no %s in /proc/PID/status", name)
}

// alone keeps no connection open: an idle connection of its own would be counted.
var alone = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// scrape reads gauges and counters from a /metrics page.
func scrape(ctx context.Context, url string, names ...string) ([]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := alone.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	var values []float64
	for _, name := range names {
		metrics := families[name].GetMetric()
		if len(metrics) == 0 {
			return nil, fmt.Errorf("%s: no %s", url, name)
		}
		values = append(values, value(metrics[0]))
	}
	return values, nil
}

func value(m *dto.Metric) float64 {
	if m.GetGauge() != nil {
		return m.GetGauge().GetValue()
	}
	return m.GetCounter().GetValue() + m.GetUntyped().GetValue()
}
