package report

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
	"github.com/tsenart/vegeta/v12/lib/plot"
)

func TestWrite_VegetaReadsWhatItSentAndThePageLinksTheFiles(t *testing.T) {
	folder, r := t.TempDir(), exampleReport()
	r.Scenarios[0].Sent = vegeta.Results{
		{Seq: 0, Code: 201, Timestamp: r.When, Latency: 3 * time.Millisecond, Method: "POST", URL: "http://127.0.0.1:1/v1/orders"},
		{Seq: 1, Code: 409, Timestamp: r.When.Add(time.Second), Latency: 9 * time.Millisecond, Error: "409 Conflict", Method: "POST", URL: "http://127.0.0.1:2/v1/orders"},
	}
	log := filepath.Join(folder, "inventory-redis+row-redis-down", "replica-1.log")
	if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), os.WriteFile(log, nil, 0o600), Write(folder, r)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "inventory-naive-none", "attack.bin"))
	if err != nil {
		t.Fatal(err)
	}
	var metrics vegeta.Metrics
	drawn := plot.New()
	decode := vegeta.DecoderFor(bytes.NewReader(text))
	for {
		var result vegeta.Result
		if err := decode(&result); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		metrics.Add(&result)
		if err := drawn.Add(&result); err != nil {
			t.Fatal(err)
		}
	}
	metrics.Close()
	drawn.Close()
	var printed, plotted strings.Builder
	_, failed := drawn.WriteTo(&plotted)
	if err := errors.Join(failed, vegeta.NewTextReporter(&metrics).Report(&printed)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(printed.String(), "201:1  409:1") || !strings.Contains(plotted.String(), "inventory/naive/none") {
		t.Errorf("vegeta report prints\n%s", printed.String())
	}
	page, err := os.ReadFile(filepath.Join(folder, "index.html"))
	for _, link := range []string{`href="inventory-naive-none/attack.bin"`, `href="inventory-redis&#43;row-redis-down/attack.bin"`, `href="inventory-redis&#43;row-redis-down/replica-1.log"`} {
		if err != nil || !strings.Contains(string(page), link) {
			t.Errorf("%s is not on the page (%v)", link, err)
		}
	}
}
