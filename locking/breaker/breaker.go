// SPDX-License-Identifier: MIT

package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Config of a Breaker.
type Config struct {
	Probe   func(context.Context) error // sends a request; a nil error means that the server has answered
	Timeout time.Duration               // of a probe
	Every   time.Duration               // the interval between probes while the breaker is open
	Grace   time.Duration               // how long after the last answer a failure opens it; 0: the first one does

	// Changed is called with the reason when the breaker opens, and with nil when it
	// closes. It must not call the Breaker.
	Changed func(why error)
}

// Breaker is safe for concurrent use.
type Breaker struct {
	config  Config
	circuit *gobreaker.CircuitBreaker[struct{}]

	mu       sync.Mutex
	why      error     // the last failure
	answered time.Time // the last answer to a probe
}

// errLeft is the error of a probe whose caller left, which is neither an answer nor a
// failure of the server.
var errLeft = errors.New("breaker: the caller of the probe has left")

// New makes a Breaker that is closed.
func New(c Config) *Breaker {
	b := &Breaker{config: c}
	b.circuit = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1, // one probe at a time
		Timeout:     c.Every,
		ReadyToTrip: func(gobreaker.Counts) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return time.Since(b.answered) >= c.Grace
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errLeft) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case c.Changed == nil:
			case from == gobreaker.StateClosed:
				c.Changed(b.Why())
			case to == gobreaker.StateClosed:
				c.Changed(nil)
			}
		},
	})
	return b
}

// Allow returns nil if the caller may use the server. While the breaker is open, one
// caller in each interval waits for a probe, and all others are refused at once.
func (b *Breaker) Allow(ctx context.Context) error {
	if b.circuit.State() == gobreaker.StateClosed {
		return nil
	}
	return b.Check(ctx)
}

// Check sends a probe, even while the breaker is closed, unless it is too early for the
// next one. It returns nil if the server has answered.
func (b *Breaker) Check(ctx context.Context) error {
	_, err := b.circuit.Execute(func() (struct{}, error) {
		bounded, cancel := context.WithTimeout(ctx, b.config.Timeout)
		defer cancel()
		err := b.config.Probe(bounded)
		if err != nil && ctx.Err() == context.Canceled {
			return struct{}{}, fmt.Errorf("%w: %w", errLeft, err)
		}
		b.note(err)
		return struct{}{}, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return b.Why()
	}
	return err
}

// Failed reports that a request got no answer.
func (b *Breaker) Failed(why error) {
	b.note(why)
	_, _ = b.circuit.Execute(func() (struct{}, error) { return struct{}{}, why })
}

func (b *Breaker) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.answered = time.Now()
	} else {
		b.why = err
	}
}

// Open reports whether callers are refused.
func (b *Breaker) Open() bool { return b.circuit.State() != gobreaker.StateClosed }

// Why returns the last failure.
func (b *Breaker) Why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why
}
