// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"shop/inventory"
	"shop/locking/combine"
	"shop/locking/idempotency"
	"shop/transfer"
	"shop/wallet"
)

// failpoint is an action at one step of a purchase, a transfer or a wallet operation, in the lab only:
//
//	STEP=exp:MEAN       a pause, drawn for each request from an exponential distribution
//	STEP=sleep:D        a pause of D
//	STEP=kill           SIGKILL to this process
//	STEP=stop           SIGSTOP to this process; another process must send SIGCONT
//	STEP=stop:KEY       the same, once, when the request with this idempotency key reaches the step
//	STEP=kill-batch     SIGKILL when a batch of several requests reaches the step
//	STEP=stop-batch     SIGSTOP, once after each SIGUSR1, when such a batch reaches the step; SIGUSR2 takes SIGUSR1 back
//	FLOW/STEP=…         in that flow only; without FLOW, in each flow that has the step
//
// The pauses of exp vary on purpose: with a constant pause, the request that came first
// would always write first, and no write would ever be overtaken.
type failpoint struct {
	flow   string // "": every flow
	step   string
	action string
	pause  time.Duration
	key    string       // "": every request
	armed  *atomic.Bool // of stop:KEY and stop-batch: the next that comes is stopped
}

// stepsOf are the steps of each flow, in order.
var stepsOf = map[string][]string{
	"inventory": stepNames(inventory.Steps()...),
	"transfer":  stepNames(transfer.Steps()...),
	"wallet":    stepNames(wallet.Steps()...),
}

func stepNames[S ~string](steps ...S) (list []string) {
	for _, s := range steps {
		list = append(list, string(s))
	}
	return list
}

// in reports whether the failpoint applies to a flow.
func (f failpoint) in(flow string) bool {
	return (f.flow == "" || f.flow == flow) && slices.Contains(stepsOf[flow], f.step)
}

// UnmarshalText parses a flag.
func (f *failpoint) UnmarshalText(text []byte) error {
	step, action, _ := strings.Cut(string(text), "=")
	action, arg, _ := strings.Cut(action, ":")
	f.step, f.action = step, action
	if flow, rest, ok := strings.Cut(step, "/"); ok {
		f.flow, f.step = flow, rest
		if flow == "" {
			f.flow = "/" // none
		}
	}
	if !f.in("inventory") && !f.in("transfer") && !f.in("wallet") {
		return fmt.Errorf("failpoint %q: no such step; there are %v", text, stepsOf)
	}
	switch action {
	case "stop":
		f.key, f.armed = arg, new(atomic.Bool)
		f.armed.Store(true)
		return nil
	case "kill", "kill-batch", "stop-batch":
		if arg != "" {
			return fmt.Errorf("failpoint %q: %s takes no argument", text, action)
		}
		f.armed = new(atomic.Bool)
		return nil
	case "exp", "sleep":
		var err error
		if f.pause, err = time.ParseDuration(arg); err != nil || f.pause <= 0 {
			return fmt.Errorf("failpoint %q: %s wants a duration above 0, as in %s=%s:2ms", text, action, step, action)
		}
		return nil
	}
	return fmt.Errorf("failpoint %q: no such action; want STEP=exp:MEAN, STEP=sleep:D, STEP=kill, STEP=stop, STEP=stop:KEY, STEP=kill-batch or STEP=stop-batch", text)
}

// exponential draws from an exponential distribution with mean 1.
func exponential(seed uint64) func() float64 {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return random.ExpFloat64()
	}
}

// hook returns the function that a flow calls at each step, or nil without failpoints.
func hook[S ~string](flow string, points []failpoint, draw func() float64) func(context.Context, S, string) {
	points = slices.DeleteFunc(slices.Clone(points), func(f failpoint) bool { return !f.in(flow) })
	if len(points) == 0 {
		return nil
	}
	for _, p := range points {
		if p.action == "stop-batch" {
			arm(p.armed)
		}
	}
	return func(ctx context.Context, step S, _ string) {
		for _, p := range points {
			if p.step == string(step) {
				p.happen(ctx, draw)
			}
		}
	}
}

func (f failpoint) happen(ctx context.Context, draw func() float64) {
	switch f.action {
	case "exp":
		pause(ctx, time.Duration(draw()*float64(f.pause)))
	case "sleep":
		pause(ctx, f.pause)
	case "kill":
		kill()
	case "kill-batch":
		if combine.Requests(ctx) > 1 {
			kill()
		}
	case "stop-batch":
		if combine.Requests(ctx) > 1 && f.armed.CompareAndSwap(true, false) {
			stop()
		}
	case "stop":
		if f.key == "" || f.key == ctx.Value(keyOf{}) && f.armed.CompareAndSwap(true, false) {
			stop()
		}
	}
}

// arm sets a flag at SIGUSR1, and clears it at SIGUSR2.
func arm(flag *atomic.Bool) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range signals {
			flag.Store(s == syscall.SIGUSR1)
		}
	}()
}

func kill() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }

// stop stops the process. The signal does not stop all threads at once, so the goroutine of
// the request waits until the process is continued.
func stop() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) == nil {
		<-continued
	}
}

// keyOf is the context key of a request's idempotency key.
type keyOf struct{}

// keyed puts the idempotency key of a request into its context, for failpoints with a key.
// Without such failpoints it returns next.
func keyed(points []failpoint, next http.Handler) http.Handler {
	if !slices.ContainsFunc(points, func(f failpoint) bool { return f.key != "" }) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key, err := idempotency.ParseKey(r.Header.Get("Idempotency-Key")); err == nil {
			r = r.WithContext(context.WithValue(r.Context(), keyOf{}, key))
		}
		next.ServeHTTP(w, r)
	})
}

// pause waits for d, or until the context ends, as real work would.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
