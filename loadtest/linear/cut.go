package linear

import (
	"context"
	"io"
	"slices"
	"time"
)

// cut is the smallest part of an illegal partition that is still illegal, as far as ctx
// lasts: the shortest beginning by return time, without the reads and refusals that it is
// illegal without. Writes cannot be left out: each explains those behind it.
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

// beginning is the shortest beginning that is illegal. A longer one is then illegal too, so
// that it is found by halving.
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

// without leaves out so many reads at a time, as long as the rest is illegal.
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

// The bounds of a drawing: it is for people, and shows each order with all its states.
const (
	drawMax  = 400
	drawTime = 20 * time.Second
)

// Drawable tells whether the failure can be drawn.
func (f Failure) Drawable() bool { return f.Verdict == Illegal && len(f.Steps) <= drawMax }

// Draw writes the page on which porcupine shows the failure.
func (f Failure) Draw(ctx context.Context, w io.Writer) error {
	ctx, stop := context.WithTimeoutCause(ctx, drawTime, ErrTime)
	defer stop()
	return f.draw(ctx, w)
}
