// SPDX-License-Identifier: MIT

package loadtest

import (
	"time"

	"shop/loadtest/judge"
	"shop/loadtest/traffic"
)

// Shown is what the report shows of a flow.
type Shown struct {
	Guard    string                    // the last guard: a constraint of the database
	Workload func(traffic.Plan) string // describes a plan in words
	Summary  func(Result) string       // describes a result in words
	Gauge    func(Result) Gauge        // nil: there is none
	Curves   []Curve                   // of the samples
	Words    Words
}

// Words are the flow's texts on the page of the report.
type Words struct {
	Workload string // which clients send what
	Gauge    string // heading of the bars of Flow.Gauge
	Done     string // heading of the count of keys that had an effect
	Levels   string // caption of the curves
	Note     string // below the table of verdicts
}

// Gauge compares the units that were given away with those that there were.
type Gauge struct{ Done, Over, There int64 }

// Curve is a line in the plot of the samples.
type Curve struct {
	Name   string
	Dashed bool
	Of     func(judge.Sample) int64
}

// Story shows how a violation came about, as a text and the time line below it.
type Story struct {
	Title, Text string
	Bars        []Bar
}

// Bar is one request of a time line.
type Bar struct {
	Who, Then  string
	Start, End time.Duration
	Over       bool // it sold beyond the stock
}
