// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"time"

	bench "shop/loadtest/rows"
	"shop/locking"
	"shop/locking/combine"
)

// combined is compared with the peers on all servers, by its own rows.
var combined = rival{"combine", "redis", true, openCombined}

// lockTurn is how long a process keeps the lease while its goroutines want the key: many times what one batch takes,
// and short compared with an interval, in which each process must get its turn.
const lockTurn = 10 * time.Millisecond

// delegated is a locker whose holder runs the sections of all goroutines that wait.
type delegated struct {
	*combine.Combiner[func(), struct{}]
	end func()
}

func (d delegated) hold(ctx context.Context, key string, section func()) error {
	_, err := d.Do(ctx, section, key)
	return err
}

func (d delegated) close() {
	d.Close()
	d.end()
}

func openCombined(context.Context) (locker, error) {
	s, end, err := redisStoreOf(newFair)
	if err != nil {
		return nil, err
	}
	c, err := combine.New(combine.Config[func(), struct{}]{
		Store: s, MaxTurn: lockTurn, Pause: time.Microsecond, // the fair lock tells the next process
		Apply: func(_ context.Context, _ locking.Lease, batch []func()) ([]combine.Result[struct{}], error) {
			for _, section := range batch {
				section()
			}
			return make([]combine.Result[struct{}], len(batch)), nil
		},
	})
	return delegated{c, end}, err
}

// emptyMax is how often a measurement without a single grant is made. It has no ratio.
const emptyMax = 5

// lockRows compares combine with each peer, whatever its server, and writes the rows.
func (s settings) lockRows(ctx context.Context) error {
	fmt.Printf("%d goroutines hand one key on: ratios of %d pairs, median [without the smallest and the largest]\n%s\n", s.waiters, s.pairs, bench.Header())
	var rows []bench.Row
	for _, peer := range rivals {
		if peer.ours {
			continue
		}
		for _, processes := range []int{1, 4} {
			row := bench.Row{Case: "lock", Strategy: combined.name, Clients: s.waiters, Processes: processes, Baseline: peer.name}
			var samples [2][]bench.Sample
			if _, err := pairs(s.pairs, func(of int) (float64, error) {
				c, err := s.hotKey(ctx, []rival{combined, peer}[of], processes)
				for n := 1; err == nil && c.sum() == 0; n++ { // a peer that polls may get no turn on a busy machine
					if n == emptyMax {
						return 0, fmt.Errorf("no goroutine got the key in %d times %v: use a longer --interval", n, s.interval)
					}
					c, err = s.hotKey(ctx, []rival{combined, peer}[of], processes)
				}
				samples[of] = append(samples[of], c.sample(processes))
				return c.perSecond(), err
			}); err != nil {
				return fmt.Errorf("against %s: %w", peer.name, err)
			}
			row.Fill(samples[0], samples[1])
			fmt.Println(row)
			rows = append(rows, row)
		}
	}
	return bench.Write(s.out, rows)
}

// hotKey lets the waiters of one rival want one key.
func (s settings) hotKey(ctx context.Context, r rival, processes int) (contest, error) {
	if processes > 1 {
		return among(ctx, r, processes, s.waiters/processes, s.interval)
	}
	l, err := r.open(ctx)
	if err != nil {
		return contest{}, err
	}
	defer l.close()
	if _, err := alone(ctx, l, s.waiters, s.interval/4); err != nil { // connects, loads scripts and statements
		return contest{}, err
	}
	return alone(ctx, l, s.waiters, s.interval)
}

// sample returns a contest of goroutines of one process, or of processes.
func (c contest) sample(processes int) bench.Sample {
	s := bench.Sample{Waits: c.Waits, Over: c.Over, Each: []int{int(c.sum())}}
	if processes > 1 {
		s.Each = nil
		for _, n := range c.Grants {
			s.Each = append(s.Each, int(n))
		}
	}
	return s
}
