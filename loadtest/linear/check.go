// SPDX-License-Identifier: MIT

package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// Limits bound a check.
type Limits struct {
	Time time.Duration // for each partition; 0: 30 s
	Heap uint64        // of the process, in bytes; 0: 4 GiB
}

// The default limits.
const (
	TimeDefault = 30 * time.Second
	HeapDefault = 4 << 30
)

// Result is the result of a check.
type Result struct {
	Operations int // that are in a partition
	Partitions int
	Legal      int
	Illegal    int
	Undecided  int
	Took       time.Duration
	Failures   []Failure // the partitions that are not legal
}

// Failure is a partition that is not legal.
type Failure struct {
	Partition // an illegal one is cut down
	Verdict   Verdict
	Whole     int   // number of operations before the cut
	Why       error // why an undecided one was not decided
}

// The limits that end a check or a drawing without a result.
var (
	ErrTime = errors.New("time limit exceeded")
	ErrHeap = errors.New("heap limit exceeded")
)

// Check decides all partitions, as many at a time as there are CPUs.
func Check(ctx context.Context, partitions []Partition, limits Limits) Result {
	start := time.Now()
	if limits.Time == 0 {
		limits.Time = TimeDefault
	}
	if limits.Heap == 0 {
		limits.Heap = HeapDefault
	}
	ctx, stop := watchHeap(ctx, limits.Heap)
	defer stop()
	failures := make([]*Failure, len(partitions))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var work sync.WaitGroup
	for i, p := range partitions {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			failures[i] = p.check(ctx, limits.Time)
		})
	}
	work.Wait()
	r := Result{Operations: operations(partitions), Partitions: len(partitions)}
	for _, f := range failures {
		switch {
		case f == nil:
			r.Legal++
			continue
		case f.Verdict == Illegal:
			r.Illegal++
		default:
			r.Undecided++
		}
		r.Failures = append(r.Failures, *f)
	}
	r.Took = time.Since(start)
	return r
}

// operations counts the operations that are in a partition.
func operations(partitions []Partition) int {
	seen := map[*Operation]bool{}
	for _, p := range partitions {
		for _, s := range p.Steps {
			seen[s.Of] = true
		}
	}
	return len(seen)
}

// errOther shows an error of this package: its verdict and that of porcupine differ.
var errOther = errors.New("found illegal, but porcupine finds a legal order")

// check decides a partition. It returns nil if the partition is legal.
func (p Partition) check(ctx context.Context, limit time.Duration) *Failure {
	bounded, stop := context.WithTimeoutCause(ctx, limit, ErrTime)
	defer stop()
	part, verdict := p.decide(bounded)
	switch verdict {
	case Legal:
		return nil
	case Undecided:
		return &Failure{p, verdict, len(p.Steps), cmp.Or(context.Cause(bounded), ErrTime)}
	}
	cutting, stop := context.WithTimeoutCause(ctx, limit, ErrTime) // the verdict is known: the cut is for the report
	defer stop()
	if part = part.cut(cutting); part.porcupine(cutting) == Legal {
		return &Failure{p, Undecided, len(p.Steps), errOther}
	}
	return &Failure{part, verdict, len(p.Steps), nil}
}

// decide returns the verdict, and the partition or part that it is about. The parts are decided first,
// within half of the time: most errors show in one of them, where there are far fewer orders to try, and
// the orders of legal parts can be composed to one of the whole.
func (p Partition) decide(ctx context.Context) (Partition, Verdict) {
	if len(p.Parts) > 0 {
		end, _ := ctx.Deadline()
		share := time.Until(end) / time.Duration(2*len(p.Parts))
		var orders [][]int
		for _, part := range p.Parts {
			bounded, stop := context.WithTimeout(ctx, share)
			verdict, order := part.order(bounded)
			stop()
			if verdict == Illegal {
				return part, Illegal
			}
			orders = append(orders, order)
		}
		if p.verify(p.compose(orders)) {
			return p, Legal
		}
	}
	verdict, _ := p.order(ctx)
	return p, verdict
}

// Sentence describes the failure.
func (f Failure) Sentence() string {
	if f.Verdict == Undecided {
		return fmt.Sprintf("%s: %d operations, no verdict: %v", f.Object, f.Whole, f.Why)
	}
	last := Step{Text: "nothing"}
	for _, s := range f.Steps {
		if s.Return != Forever && s.Return >= last.Return {
			last = s
		}
	}
	return fmt.Sprintf("%s: no order of the operations explains the answers up to %s, %v after the start (cut down to %d operations of %d)",
		f.Object, last.Text, time.Duration(last.Return).Round(time.Microsecond), len(f.Steps), f.Whole)
}

// heapEvery is how often the heap is measured: a search allocates a few hundred MB in a second.
const heapEvery = 100 * time.Millisecond

// watchHeap cancels ctx when the heap of the process exceeds a limit.
func watchHeap(ctx context.Context, most uint64) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		tick := time.NewTicker(heapEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if metrics.Read(sample); sample[0].Value.Uint64() > most {
				cancel(ErrHeap)
			}
		}
	})
	return ctx, func() { cancel(nil); work.Wait() }
}
