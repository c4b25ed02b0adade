package inventory_test

import (
	"context"
	"io"
	"net"
	"testing"

	"shop/inventory"
	"shop/locking"
)

// delayed delivers the request after whatever happens meanwhile, and everything after it as usual.
func delayed(meanwhile func()) fault {
	return func(request []byte, client, server net.Conn) {
		meanwhile()
		_, _ = server.Write(request)
		_, _ = io.Copy(server, client)
	}
}

func TestCommit_IsNotCutByAClientThatLeaves(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	s, _, start := armed(t, "row", func(p *proxy) { p.arm(delayed(leave)) })
	s.stock("A", 1)
	start.Store(true)
	reply, err := s.Buy(ctx, ask(), one("A"))
	if err != nil || reply.Status != 201 || s.events.of(inventory.Ambiguous) != 0 {
		t.Errorf("%+v, %v, %d ambiguous: the COMMIT was on its way", reply, err, s.events.of(inventory.Ambiguous))
	}
	s.mustHold()
}

func TestCommit_IsNotCutByALostLease(t *testing.T) {
	t.Parallel()
	store, steal := stealable(t)
	lost := make(chan struct{})
	s, _, start := armed(t, "row", func(p *proxy) {
		p.arm(delayed(func() {
			steal(context.Background())
			<-lost
		}))
	})
	cfg := s.armedCfg
	cfg.Strategy, cfg.Locks = "redis+row", store
	cfg.Lock.Observer = func(e locking.Event) {
		if e.Kind == locking.Lost {
			close(lost)
		}
	}
	s.Service, s.events = s.another(cfg)
	s.stock("A", 1)
	start.Store(true)
	reply, err := s.Buy(t.Context(), ask(), one("A"))
	if err != nil || reply.Status != 201 || s.events.of(inventory.Ambiguous) != 0 {
		t.Errorf("%+v, %v, %d ambiguous: the COMMIT was on its way", reply, err, s.events.of(inventory.Ambiguous))
	}
	s.mustHold()
}
