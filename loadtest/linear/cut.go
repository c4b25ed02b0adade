// SPDX-License-Identifier: MIT

package linear

import (
	"context"
	"io"
	"slices"
	"time"
)

// cut reduces an illegal partition to a small one that is still illegal, until ctx ends: to the shortest
// illegal prefix by return time, and then to the reads and refusals without which it would be legal.
// Writes cannot be left out: each one explains later answers.
func (p Partition) cut(ctx context.Context) Partition {
	p.Parts = nil
	illegal := func(q Partition) bool {
		if ctx.Err() != nil {
			return false
		}
		verdict, _ := q.order(ctx)
		return verdict == Illegal
	}
	p = p.beginning(illegal)
	for chunk := len(p.Steps) / 2; chunk > 0; chunk /= 2 {
		p = p.without(chunk, illegal)
	}
	return p
}

// beginning returns the shortest prefix that is illegal. Every longer prefix is illegal too, so a binary
// search finds it.
func (p Partition) beginning(illegal func(Partition) bool) Partition {
	var moments []int64
	for _, s := range p.Steps {
		if s.Return != Forever {
			moments = append(moments, s.Return)
		}
	}
	slices.Sort(moments)
	moments = slices.Compact(moments)
	for low, high := 0, len(moments)-1; low <= high; {
		middle := (low + high) / 2
		if shorter := p.until(moments[middle]); illegal(shorter) {
			p, high = shorter, middle-1
		} else {
			low = middle + 1
		}
	}
	return p
}

// without leaves out chunks of reads, each if the rest is still illegal.
func (p Partition) without(chunk int, illegal func(Partition) bool) Partition {
	var reads []int
	for i, s := range p.Steps {
		if s.Reads {
			reads = append(reads, i)
		}
	}
	var gone []int
	rest := func() Partition {
		q := p
		q.Steps = nil
		for i, s := range p.Steps {
			if !slices.Contains(gone, i) {
				q.Steps = append(q.Steps, s)
			}
		}
		return q
	}
	for some := range slices.Chunk(reads, chunk) {
		kept := len(gone)
		if gone = append(gone, some...); !illegal(rest()) {
			gone = gone[:kept]
		}
	}
	return rest()
}

// The bounds of a drawing, which shows each order with all its states, and must stay readable.
const (
	drawMax  = 400
	drawTime = 20 * time.Second
)

// Drawable reports whether the failure is illegal and small enough to be drawn.
func (f Failure) Drawable() bool { return f.Verdict == Illegal && len(f.Steps) <= drawMax }

// Draw writes the page on which porcupine shows the failure.
func (f Failure) Draw(ctx context.Context, w io.Writer) error {
	ctx, stop := context.WithTimeoutCause(ctx, drawTime, ErrTime)
	defer stop()
	return f.draw(ctx, w)
}
