// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
	"github.com/tsenart/vegeta/v12/lib/plot"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/traffic"
)

// sent returns vegeta's results for three requests, one of which is refused.
func sent(t *testing.T, user string) vegeta.Results {
	t.Helper()
	bases := testbed.Serve(t, 2, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Idempotency-Key") == "late" {
			testbed.Problem(w, http.StatusConflict, "out-of-stock")
			return
		}
		testbed.Created(w, account1)
	})
	for i := range bases {
		bases[i] = strings.Replace(bases[i], "://", "://"+user, 1)
	}
	flow := &loadtest.Flow{Answers: loadtest.Answers{Stored: []string{"out-of-stock"}}}
	run, err := traffic.NewRun(t.Context(), bases, traffic.Headers{Key: "Idempotency-Key", Clients: []http.Header{{}}}, time.Second, flow.Classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	first, late := &traffic.Intent{Key: "first", Method: http.MethodPost}, &traffic.Intent{Key: "late", Method: http.MethodPost}
	return run.Send(t.Context(), []traffic.ScheduledRequest{{Intent: first}, {Replica: 1, Intent: first}, {At: time.Millisecond, Intent: late}})
}

func TestWrite_VegetaReadsWhatItSentAndThePageLinksTheFiles(t *testing.T) {
	folder, r := t.TempDir(), exampleReport()
	r.Scenarios[0].Sent = sent(t, "reader:s3cret@")
	log := filepath.Join(folder, "inventory-naive-none", "replica-1.log")
	if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), os.WriteFile(log, nil, 0o600), Write(folder, r)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "inventory-naive-none", "attack.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("s3cret")) || bytes.Contains(text, []byte("out-of-stock")) {
		t.Error("a password is in the file, or what was in an answer")
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
	if !strings.Contains(printed.String(), "201:2  409:1") || !strings.Contains(plotted.String(), "inventory/naive/none") {
		t.Errorf("vegeta report prints\n%s", printed.String())
	}
	if _, err := os.Stat(filepath.Join(folder, "inventory-redis+row-redis-down", "attack.bin")); err == nil {
		t.Error("there is a file of a scenario that sent nothing")
	}
	page, err := os.ReadFile(filepath.Join(folder, "index.html"))
	for _, link := range []string{`href="inventory-naive-none/attack.bin"`, `href="inventory-naive-none/replica-1.log"`} {
		if err != nil || !strings.Contains(string(page), link) {
			t.Errorf("%s is not on the page (%v)", link, err)
		}
	}
}

func TestWrite_EachLinkLeadsToAFileWhateverTheNameOfTheService(t *testing.T) {
	folder, r := t.TempDir(), exampleReport()
	foreign := &loadtest.Flow{Name: loadtest.TargetFlow, Shown: loadtest.Shown{Summary: func(loadtest.Result) string { return "" }}}
	r.Scenarios = append(r.Scenarios, loadtest.NewResult(foreign.Safe(`my/shop #1 50%41? "q"`, loadtest.NoFault), 2))
	if err := Write(folder, r); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(folder, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`href="([^#"][^"]*)"`).FindAllStringSubmatch(string(page), -1)
	for _, link := range links {
		to, err := url.Parse(html.UnescapeString(link[1]))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(folder, to.Path)); err != nil {
			t.Errorf("%s: %v", link[0], err)
		}
	}
	if len(links) != 3 {
		t.Errorf("%d links, want one for the history of each scenario", len(links))
	}
}
