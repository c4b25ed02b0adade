// SPDX-License-Identifier: MIT

package report

import (
	"encoding/json"
	"strings"
	"testing"

	"shop/loadtest"
	"shop/loadtest/soak"
)

// soakedReport is a report of a soak in which the keys grew.
func soakedReport() loadtest.Report {
	r := exampleReport()
	most := 0.0
	r.AsExpected = false
	r.Series = []soak.Series{
		{Gauge: soak.Gauge{Name: "replica 1: memory", Unit: "MiB", From: "/proc/PID/status"}, Before: 30, Early: 60.5, Late: 62, Limit: 85.6, Rest: 61, Verdict: soak.Bounded, Points: []soak.Point{{At: 0, Value: 30}, {At: 5, Value: 60}}},
		{Gauge: soak.Gauge{Name: "PostgreSQL: idempotency keys", From: "idempotency_keys"}, Early: 900, Late: 4000, Limit: 1325, Rest: 4100, Verdict: soak.Grows, Why: "median 900, then 4000 <b>"},
		{Gauge: soak.Gauge{Name: "Redis: locks", From: "SCAN"}, Rest: 1, RestMax: &most, Verdict: soak.Left, Why: "1 at rest"},
	}
	return r
}

func TestTable_ASoakHasARowForEachSeriesAndMarksWhatGrows(t *testing.T) {
	var table strings.Builder
	if err := Table(&table, soakedReport()); err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(table.String(), "soak: ")
	lines := strings.Split(strings.TrimSpace(rows), "\n")
	if len(lines) != 5 {
		t.Fatalf("%s", rows)
	}
	for n, want := range map[int]string{
		2: "replica 1: memory, MiB 30 60.5 62 85.6 61 – bounded",
		3: "PostgreSQL: idempotency keys 0 900 4000 1325 4100 – grows NOT AS EXPECTED",
		4: "Redis: locks 0 0 0 – 1 0 left over NOT AS EXPECTED",
	} {
		got := strings.Join(strings.Fields(lines[n]), " ")
		for _, word := range strings.Fields(want) {
			if !strings.Contains(got, word) {
				t.Errorf("%q is not in %q", word, got)
			}
		}
	}
}

func TestHTML_ASoakIsShownWithItsSeries(t *testing.T) {
	page := renderHTML(t, soakedReport())
	for _, piece := range []string{"Soak</h2>", "replica 1: memory, MiB", "M1.0 ", "60.5", "✗ median 900, then 4000 &lt;b&gt;", "2 of 3 series not bounded"} {
		if !strings.Contains(page, piece) {
			t.Errorf("%q is not on the page", piece)
		}
	}
	if strings.Contains(renderHTML(t, exampleReport()), "Soak") {
		t.Error("a soak that there was not")
	}
}

func TestCI_ASeriesThatGrowsFails(t *testing.T) {
	var xml, text strings.Builder
	if err := JUnit(&xml, soakedReport()); err != nil {
		t.Fatal(err)
	}
	if err := Summary(&text, soakedReport()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(xml.String(), `<testsuite name="soak" tests="3" failures="2" `) || !strings.Contains(xml.String(), `PostgreSQL: idempotency keys is bounded`) {
		t.Errorf("%s", xml.String())
	}
	if !strings.Contains(text.String(), "- ❌ soak: Redis: locks: left over: 1 at rest") {
		t.Errorf("%s", text.String())
	}
}

func TestJSON_ASoakHasItsSeries(t *testing.T) {
	text, err := json.Marshal(soakedReport().Series[2])
	const want = `{"name":"Redis: locks","from":"SCAN","before":0,"early":0,"late":0,"limit":0,"rest":1,"rest_limit":0,"verdict":"left over","why":"1 at rest","points":null}`
	if err != nil || string(text) != want {
		t.Errorf("%v, %s", err, text)
	}
}
