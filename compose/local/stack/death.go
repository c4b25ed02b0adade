package stack

import (
	"context"
	"fmt"
	"time"
)

// A death is the end of a server that no request has asked for. Each test that
// waits for an answer of that server may wait for ever, so exec ends its command.

// Died returns a server whose end no request has asked for, as soon as there is one.
func (s *Stack) Died(ctx context.Context) (*Server, error) {
	dead, err := call(ctx, s.dir, request{Op: "died"})
	if err != nil {
		return nil, err
	}
	return s.handles(dead)[0], nil
}

// awaitDeath is Died in the supervisor.
func (s *supervisor) awaitDeath(ctx context.Context) ([]Server, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, server := range s.list() {
			if server.Death != "" {
				return []Server{server}, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// expect says whether the server is to run from now on. While it is, its end is a death.
func (i *instance) expect(running bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expected = running
}

// death says how a server ended that is expected to run; "" while it does.
func (i *instance) death() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.expected {
		return ""
	}
	select {
	case <-i.exited:
		return fmt.Sprintf("%s; last log lines:\n%s", i.cmd.ProcessState, i.lastWords())
	default:
		return ""
	}
}
