// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	bench "shop/loadtest/rows"
)

// turn is what a process does: its share of the clients, with one strategy.
type turn struct {
	Place    place
	Strategy string
	Clients  int
	Work     time.Duration
	Interval time.Duration
}

// load runs the processes of a comparison with one strategy.
func load(ctx context.Context, p place, c comparison, strategy string, over time.Duration) (all bench.Sample, err error) {
	if c.Case == "http-product" {
		return overHTTP(ctx, p, c, strategy, over)
	}
	t := turn{p, strategy, c.Clients / c.Processes, c.Work, over}
	if c.Processes == 1 {
		return t.run(ctx, func() error { return nil })
	}
	self, err := os.Executable()
	if err != nil {
		return all, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return all, err
	}
	type child struct {
		*exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	var children []child
	defer func() {
		if err != nil {
			kill() // one that waits to write would wait for ever
		}
		for _, c := range children {
			_ = c.in.Close()
			err = errors.Join(err, c.Wait())
		}
	}()
	for range c.Processes {
		cmd := exec.CommandContext(ctx, self, "--child", string(text))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return all, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return all, err
		}
		if err := cmd.Start(); err != nil {
			return all, err
		}
		children = append(children, child{cmd, in, bufio.NewReader(out)})
	}
	for _, c := range children {
		if _, err := c.out.ReadString('\n'); err != nil { // connected
			return all, fmt.Errorf("a process did not begin: %w", err)
		}
	}
	for _, c := range children {
		if _, err := io.WriteString(c.in, "go\n"); err != nil {
			return all, err
		}
	}
	for _, c := range children {
		var one bench.Sample
		if err := json.NewDecoder(c.out).Decode(&one); err != nil {
			return all, fmt.Errorf("a process did not finish: %w", err)
		}
		all.Waits, all.Each, all.Over = append(all.Waits, one.Waits...), append(all.Each, one.Each...), max(all.Over, one.Over)
	}
	return all, nil
}

// beChild is the other side of load.
func beChild(ctx context.Context, text string) error {
	var t turn
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	s, err := t.run(ctx, func() error {
		fmt.Println("connected")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// run opens the service, lets each client send a request, waits for begin, and loads the service.
func (t turn) run(ctx context.Context, begin func() error) (s bench.Sample, err error) {
	request, done, err := t.open(ctx)
	if err != nil {
		return s, err
	}
	defer done()
	if _, err := t.closedLoop(ctx, request, 0); err != nil { // connects, prepares statements
		return s, err
	}
	if err := begin(); err != nil {
		return s, err
	}
	start := time.Now()
	waits, err := t.closedLoop(ctx, request, t.Interval)
	return bench.Sample{Waits: waits, Each: []int{len(waits)}, Over: time.Since(start)}, err
}

// closedLoop lets each client send requests for a time, at least one.
func (t turn) closedLoop(ctx context.Context, request func(context.Context) error, over time.Duration) ([]time.Duration, error) {
	waits, failed := make([][]time.Duration, t.Clients), make([]error, t.Clients)
	start := time.Now()
	var all sync.WaitGroup
	for n := range t.Clients {
		all.Go(func() {
			for len(waits[n]) == 0 || time.Since(start) < over {
				asked := time.Now()
				if failed[n] = request(ctx); failed[n] != nil {
					return
				}
				waits[n] = append(waits[n], time.Since(asked))
			}
		})
	}
	all.Wait()
	return slices.Concat(waits...), errors.Join(failed...)
}
