// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"fmt"
	"slices"
	"strings"
)

// Cell is a fault at a step of a request, and what followed when it was tried.
type Cell struct {
	Step     string   `json:"step"`
	Fault    Fault    `json:"fault"`
	Verdict  Verdict  `json:"verdict,omitempty"`
	Why      []string `json:"why,omitempty"`      // why it is empty or violated
	Evidence []string `json:"evidence,omitempty"` // that a request was hit at the step
	Seconds  float64  `json:"seconds,omitempty"`
}

// String names the cell.
func (c Cell) String() string { return fmt.Sprintf("%s × %v", c.Step, c.Fault) }

// Title returns why the cell is empty or violated, and its evidence.
func (c Cell) Title() string { return strings.Join(slices.Concat(c.Why, c.Evidence), "; ") }

// note says why the cell is empty or violated.
func (c Cell) note() string {
	return fmt.Sprintf("%v is %s: %s", c, c.Verdict, strings.Join(c.Why, "; "))
}

// Fault is what happens to a replica while it is stopped at a step: a column of the matrix.
type Fault struct {
	Kind  string `json:"kind"`            // Killed, Paused or Cut
	Store string `json:"store,omitempty"` // of Cut: the store
	Lost  string `json:"lost,omitempty"`  // of Cut: Requests or Answers
}

// The kinds of Fault, and what is lost under Cut.
const (
	Killed   = "killed"
	Paused   = "paused"
	Cut      = "cut"
	Requests = "requests"
	Answers  = "answers"
)

// String is the heading of the column.
func (f Fault) String() string {
	switch f.Kind {
	case Paused:
		return "paused past the TTL"
	case Cut:
		return "cut from " + f.Store + ", " + f.Lost + " lost"
	}
	return f.Kind
}

// Verdict is the verdict of one cell.
type Verdict string

// The verdicts of cells.
const (
	OK       Verdict = "ok"
	Violated Verdict = "violated"
	Empty    Verdict = "empty" // no evidence that a request was hit at the step
	NotTried Verdict = "-"
)

// Results are cells that were tried, in order.
type Results []Cell

// String counts the cells by their verdicts.
func (r Results) String() string {
	counts, seconds, cells := map[Verdict]int{}, 0.0, "cells"
	for _, c := range r {
		counts[c.Verdict]++
		seconds += c.Seconds
	}
	if len(r) == 1 {
		cells = "cell"
	}
	return fmt.Sprintf("%d %s of the crash matrix in %.0f s: %d ok, %d violated, %d empty",
		len(r), cells, seconds, counts[OK], counts[Violated], counts[Empty])
}

// Steps are the rows of the table.
func (r Results) Steps() []string { return distinct(r, func(c Cell) string { return c.Step }) }

// Faults are the columns of the table.
func (r Results) Faults() []Fault { return distinct(r, func(c Cell) Fault { return c.Fault }) }

func distinct[T comparable](cells []Cell, of func(Cell) T) (list []T) {
	for _, c := range cells {
		if !slices.Contains(list, of(c)) {
			list = append(list, of(c))
		}
	}
	return list
}

// At returns the cell of a row and a column; its verdict is NotTried if there is none.
func (r Results) At(step string, f Fault) Cell {
	at := slices.IndexFunc(r, func(c Cell) bool { return c.Step == step && c.Fault == f })
	if at < 0 {
		return Cell{Verdict: NotTried}
	}
	return r[at]
}

// Notes list why cells are violated or empty.
func (r Results) Notes() (notes []string) {
	for _, c := range r {
		if c.Verdict != OK {
			notes = append(notes, c.note())
		}
	}
	return notes
}
