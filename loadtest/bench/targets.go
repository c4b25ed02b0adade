// SPDX-License-Identifier: MIT

package main

import "fmt"

// target is a bound for a figure of a row: of ours, or of its ratio to the other one. Of a time it is the most, of all else
// the least. A target that is missed is printed; it fails nothing.
type target struct {
	Unit     string  `json:"unit"`
	Relative bool    `json:"relative"`
	Bound    float64 `json:"bound"`
	Met      bool    `json:"met"`
}

// wanted are the targets, by the benchmark and by what it is compared with. "": anything.
var wanted = []struct {
	benchmark, ours, against string
	unit                     string
	relative                 bool
	bound                    float64
}{
	{"Product/clients=1/processes=1/work=0s", "combined", "redis+row", "ops/s", true, 0.85},
	{"Product/clients=32/processes=1/work=0s", "combined", "row", "ops/s", true, 15},
	{"Product/clients=32/processes=1/work=0s", "combined", "row", "p99-ms", true, 0.1},
	{"Product/clients=256/processes=1/work=0s", "combined", "row", "ops/s", true, 30},
	{"Product/clients=256/processes=1/work=0s", "combined", "row", "p99-ms", true, 0.1},
	{"Product/clients=1024/processes=1/work=0s", "combined", "row", "ops/s", true, 30},
	{"Product/clients=1024/processes=1/work=0s", "combined", "row", "p99-ms", true, 0.1},
	{"Account/clients=1/processes=1/work=0s", "combined", "etcd-fenced", "ops/s", true, 0.85},
	{"Account/clients=256/processes=1/work=0s", "combined", "row", "ops/s", true, 20},
	{"Wallet/clients=32/processes=1/work=0s", "combined", "lockid-no-queue", "ops/s", true, 10},
	{"Wallet/clients=32/processes=1/work=0s", "combined", "lockid-no-queue", "p99-ms", false, 200},
	{"Wallet/clients=33/processes=3/work=0s", "combined", "lockid-no-queue", "ops/s", true, 10},
	{"Wallet/clients=33/processes=3/work=0s", "combined", "lockid-no-queue", "p99-ms", false, 200},
	{"Wallet/clients=33/processes=3/work=0s", "combined", "lockid-no-queue", "min/max", false, 0.5},
	{"Many/clients=32/processes=1/work=0s", "combined", "redis+row", "ops/s", true, 0.85},
	{"HTTPProduct/clients=256/processes=3", "combined", "empty-POST", "ops/s", true, 0.5},
	{"OneKey/server=redis", "combine", "", "ops/s", true, 10},
	{"Processes/processes=4/server=redis", "combine", "", "ops/s", true, 1},
	{"Processes/processes=4/server=redis", "combine", "", "min/max", false, 0.5},
}

// judge adds the targets of a row.
func (r *row) judge() {
	for _, w := range wanted {
		figures := r.Medians[w.unit]
		if w.benchmark != r.Benchmark || w.ours != r.Ours || w.against != "" && w.against != r.Against || len(figures) < 2 {
			continue
		}
		is := figures[0]
		switch {
		case w.relative && w.unit == "ops/s":
			is = r.Ratio
		case w.relative:
			is /= figures[1]
		}
		met := is >= w.bound
		if w.unit == "p99-ms" {
			met = is <= w.bound
		}
		r.Targets = append(r.Targets, target{w.unit, w.relative, w.bound, met})
	}
}

func (t target) String() string {
	text := t.Unit
	if t.Relative {
		text += " ratio"
	}
	sign := "≥"
	if t.Unit == "p99-ms" {
		sign = "≤"
	}
	said := "missed"
	if t.Met {
		said = "met"
	}
	return fmt.Sprintf("%s %s %v: %s", text, sign, t.Bound, said)
}
