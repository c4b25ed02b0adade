package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// opClose is the number of the request that ends a session.
const opClose = -11

// failing is a connection on which every request but opClose fails, once broken is set.
type failing struct {
	net.Conn
	broken *atomic.Bool
}

func (f failing) Write(b []byte) (int, error) {
	if f.broken.Load() && int32(binary.BigEndian.Uint32(b[opOffset:])) != opClose {
		return 0, errors.New("broken pipe")
	}
	return f.Conn.Write(b)
}

// A request of go-zookeeper that is sent after its Close, and fails, stops the client for ever: it has three places
// that answer such a request, two answers fit, and the caller has left.
func TestClose_EndsAlthoughRequestsFail(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	s, err := New(t.Context(), shared(t).servers, time.Minute, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return failing{conn, &broken}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	var requests sync.WaitGroup
	var stop atomic.Bool
	for range 64 {
		requests.Go(func() {
			for !stop.Load() {
				_ = s.call(func() error { _, _, err := s.conn.Exists("/"); return err })
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	ended := make(chan struct{})
	context.AfterFunc(s.life, func() { broken.Store(true) })
	go func() { s.Close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("Close has not ended")
	}
	stop.Store(true)
	requests.Wait()
}
