package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"shop/inventory"
)

// failpoint is what happens at one step of a purchase, in the lab only:
//
//	STEP=exp:MEAN   a pause, drawn for each request from an exponential distribution
//	STEP=sleep:D    a pause of D
//	STEP=kill       SIGKILL to this process
//	STEP=stop       SIGSTOP to this process; somebody else must send SIGCONT
//
// The pauses of exp differ on purpose: after a constant one, whoever came first
// always writes first, and nothing is ever overtaken.
type failpoint struct {
	step   inventory.Step
	action string
	pause  time.Duration
}

var steps = []inventory.Step{inventory.AfterAcquire, inventory.AfterGuard, inventory.BeforeCommit, inventory.AfterCommit}

// UnmarshalText reads a flag.
func (f *failpoint) UnmarshalText(text []byte) error {
	step, action, _ := strings.Cut(string(text), "=")
	action, arg, _ := strings.Cut(action, ":")
	if !slices.Contains(steps, inventory.Step(step)) {
		return fmt.Errorf("failpoint %q: no such step; there are %v", text, steps)
	}
	f.step, f.action = inventory.Step(step), action
	switch action {
	case "kill", "stop":
		if arg != "" {
			return fmt.Errorf("failpoint %q: %s takes no argument", text, action)
		}
		return nil
	case "exp", "sleep":
		var err error
		if f.pause, err = time.ParseDuration(arg); err != nil || f.pause <= 0 {
			return fmt.Errorf("failpoint %q: %s wants a duration above 0, as in %s=%s:2ms", text, action, step, action)
		}
		return nil
	}
	return fmt.Errorf("failpoint %q: no such action; want STEP=exp:MEAN, STEP=sleep:D, STEP=kill or STEP=stop", text)
}

// hook makes the function that inventory calls at each step; nil where there is nothing to do.
func hook(points []failpoint, seed uint64) func(context.Context, inventory.Step, string) {
	if len(points) == 0 {
		return nil
	}
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	exponential := func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return random.ExpFloat64()
	}
	return func(ctx context.Context, step inventory.Step, _ string) {
		for _, p := range points {
			if p.step == step {
				p.happen(ctx, exponential)
			}
		}
	}
}

func (f failpoint) happen(ctx context.Context, exponential func() float64) {
	switch f.action {
	case "exp":
		pause(ctx, time.Duration(exponential()*float64(f.pause)))
	case "sleep":
		pause(ctx, f.pause)
	case "kill":
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	case "stop":
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}

// pause ends with the context, as real work would.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
