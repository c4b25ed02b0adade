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

func TestWrite_VegetaReadsWhatItSent(t *testing.T) {
	folder, r := t.TempDir(), exampleReport()
	r.Scenarios[0].Sent = vegeta.Results{
		{Seq: 0, Code: 201, Timestamp: r.When, Latency: 3 * time.Millisecond, Method: "POST", URL: "http://127.0.0.1:1/v1/orders"},
		{Seq: 1, Code: 409, Timestamp: r.When.Add(time.Second), Latency: 9 * time.Millisecond, Error: "409 Conflict", Method: "POST", URL: "http://127.0.0.1:2/v1/orders"},
	}
	if err := Write(folder, r); err != nil {
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
	var printed, page strings.Builder
	_, failed := drawn.WriteTo(&page)
	if err := errors.Join(failed, vegeta.NewTextReporter(&metrics).Report(&printed)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(printed.String(), "201:1  409:1") || !strings.Contains(page.String(), "inventory/naive/none") {
		t.Errorf("vegeta report prints\n%s", printed.String())
	}
}
