// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	bench "shop/loadtest/rows"
)

// uncontended returns how long a take and a release of a free key take with each of two locks, as their medians, in
// microseconds. They take turns, key by key: a machine whose speed changes changes it for both.
func uncontended(ctx context.Context, both [2]locker, over time.Duration) (medians [2]float64, err error) {
	var took [2][]float64
	start := time.Now()
	for n := 0; time.Since(start) < over || n < 2; n++ {
		for turn := range both {
			of := (n + turn) % 2
			asked := time.Now()
			if err := both[of].hold(ctx, "free-"+strconv.Itoa(n%16), func() {}); err != nil {
				return medians, err
			}
			took[of] = append(took[of], float64(time.Since(asked).Nanoseconds())/1000)
		}
	}
	for of := range both {
		_, medians[of], _ = bench.Interval(took[of])
	}
	return medians, nil
}

// contest is the result of goroutines or processes that want one key.
type contest struct {
	Grants   []int64         // of each
	Late     int64           // grants after the end, to waiters that cannot leave
	Waits    []time.Duration // from the request for the key to its release
	CPU      time.Duration
	Requests float64 // that the server has received; -1: not measured
	Over     time.Duration
}

func (c contest) sum() (n int64) {
	for _, g := range c.Grants {
		n += g
	}
	return n
}

func (c contest) perSecond() float64 { return float64(c.sum()) / c.Over.Seconds() }

func (c contest) requests() float64 { return c.Requests / float64(max(1, c.sum()+c.Late)) }

func (c contest) cpu() float64 {
	return float64(c.CPU.Microseconds()) / float64(max(1, c.sum()+c.Late))
}

// fairness is the fewest grants of a goroutine divided by the most: 1 is fair, 0 is starved.
func (c contest) fairness() float64 {
	return float64(slices.Min(c.Grants)) / float64(max(1, slices.Max(c.Grants)))
}

// fresh returns a key that no measurement before has used: a request that the end of a measurement cut off may
// hold its key until the TTL is over.
func fresh() string { return "hot-" + rand.Text() }

// contend lets n goroutines take and release one key until the time is over. The holder of the key counts in
// counter, which nothing else guards.
func contend(ctx context.Context, l locker, key string, n int, counter *counter, over time.Duration) (c contest, err error) {
	ctx, cancel := context.WithTimeout(ctx, over)
	defer cancel()
	c.Grants = make([]int64, n)
	failed, waits := make([]error, n), make([][]time.Duration, n)
	before, start := cpu(), time.Now()
	end, _ := ctx.Deadline()
	var all sync.WaitGroup
	var late atomic.Int64
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				asked, held := time.Now(), false
				err := l.hold(ctx, key, func() { held = true; counter.add() })
				switch {
				case held && ctx.Err() != nil:
					late.Add(1)
				case held:
					c.Grants[i]++
					waits[i] = append(waits[i], time.Since(asked))
				}
				if err != nil {
					// A dial may end at the deadline of ctx before ctx does.
					if held || ctx.Err() == nil && time.Now().Before(end) {
						failed[i] = err
					}
					return
				}
			}
		})
	}
	<-ctx.Done()
	c.Over = time.Since(start)
	all.Wait()
	c.CPU, c.Late, c.Waits = cpu()-before, late.Load(), slices.Concat(waits...)
	return c, errors.Join(failed...)
}

// alone lets n goroutines of this process contend for one key.
func alone(ctx context.Context, l locker, n int, over time.Duration) (c contest, err error) {
	counter, err := newCounter()
	if err != nil {
		return c, err
	}
	defer func() {
		if left := counter.close(c.sum() + c.Late); err == nil {
			err = left
		}
	}()
	c, err = contend(ctx, l, fresh(), n, counter, over)
	time.Sleep(settle)
	return c, err
}

// settle is the pause after a measurement. PostgreSQL executes a cancel request a moment after it was sent, and might
// cancel a statement of the next measurement.
const settle = 100 * time.Millisecond

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// childrenMax bounds what processes need besides their measurement: to connect, and to wait for waiters that cannot leave.
const childrenMax = 30 * time.Second

const (
	// contestTakes is how many intervals one key is wanted.
	contestTakes = 3
	// perProcess is the number of goroutines of each process that contends.
	perProcess = 16
)

// among lets processes contend for one key. Each is this program with the flag --child. They connect first, and
// begin together.
func among(ctx context.Context, r rival, processes, each int, over time.Duration) (c contest, err error) {
	counter, err := newCounter()
	if err != nil {
		return c, err
	}
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, over+childrenMax)
	defer cancel()
	type child struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	key := fresh()
	var children []child
	defer func() {
		for _, child := range children {
			_ = child.in.Close()
			err = errors.Join(err, child.cmd.Wait())
		}
		if left := counter.close(c.sum() + c.Late); err == nil {
			err = left
		}
	}()
	for range processes {
		cmd := exec.CommandContext(ctx, self, "--child", r.name, "--key", key, "--counter", counter.file, "--waiters", strconv.Itoa(each), "--interval", over.String())
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return c, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return c, err
		}
		if err := cmd.Start(); err != nil {
			return c, err
		}
		children = append(children, child{cmd, in, bufio.NewReader(out)})
	}
	for _, child := range children {
		if _, err := child.out.ReadString('\n'); err != nil { // connected
			return c, fmt.Errorf("%s: a process did not begin: %w", r.name, err)
		}
	}
	for _, child := range children {
		if _, err := io.WriteString(child.in, "go\n"); err != nil {
			return c, err
		}
	}
	for _, child := range children {
		var one contest
		if err := json.NewDecoder(child.out).Decode(&one); err != nil {
			return c, fmt.Errorf("%s: a process did not finish: %w", r.name, err)
		}
		c.Grants = append(c.Grants, one.sum())
		c.Waits = append(c.Waits, one.Waits...)
		c.CPU, c.Over, c.Late, c.Requests = c.CPU+one.CPU, max(c.Over, one.Over), c.Late+one.Late, -1
	}
	return c, nil
}

// firstWait bounds the request that connects a process: a peer that misses its own wake-up waits for ever (rueidislock
// does, now and then), and would hold up all measurements.
const firstWait = 5 * time.Second

// beChild is the other side of among.
func beChild(ctx context.Context, name, key, file string, n int, over time.Duration) error {
	r, err := find(name)
	if err != nil {
		return err
	}
	counter, err := openCounter(file)
	if err != nil {
		return err
	}
	l, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	first, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	if err := l.hold(first, fresh(), func() {}); err != nil && first.Err() == nil {
		return err
	}
	fmt.Println("connected")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	c, err := contend(ctx, l, key, n, counter, over)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(c)
}
