package etcdlock

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// wire stands between a client and a real etcd and disturbs single requests:
// on one connection many run at once, so it has to speak gRPC to tell them
// apart. What is in them it passes on as bytes.
type wire struct {
	server  *grpc.Server
	addr    string
	backend *grpc.ClientConn

	mu    sync.Mutex
	lose  int           // answers still to lose
	lost  int           // answers lost so far
	said  error         // instead of a lost answer; nil: silence
	delay time.Duration // of each answer

	method string          // whose next request is to be held back,
	hold   <-chan struct{} // until this closes
	held   int             // requests held back so far
	served int             // … and let go, and answered

	watches <-chan struct{} // until it closes, no watch begins
	txns    int             // transactions so far
}

func newWire(t testing.TB, target string) *wire {
	t.Helper()
	backend, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(asBytes{})))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: listener.Addr().String(), backend: backend}
	w.server = grpc.NewServer(grpc.ForceServerCodecV2(asBytes{}), grpc.UnknownServiceHandler(w.pass),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	var work sync.WaitGroup
	work.Go(func() { _ = w.server.Serve(listener) })
	t.Cleanup(func() {
		w.server.Stop()
		_ = backend.Close()
		work.Wait()
	})
	return w
}

func (w *wire) set(change func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

func (w *wire) loseNext(n int) { w.set(func(w *wire) { w.lose = n }) }

func (w *wire) delayEach(d time.Duration) { w.set(func(w *wire) { w.delay = d }) }

func (w *wire) lostSoFar() (n int) { w.set(func(w *wire) { n = w.lost }); return n }

func (w *wire) heldSoFar() (n int) { w.set(func(w *wire) { n = w.held }); return n }

func (w *wire) txnsSoFar() (n int) { w.set(func(w *wire) { n = w.txns }); return n }

func (w *wire) servedSoFar() (n int) { w.set(func(w *wire) { n = w.served }); return n }

// holdNext holds back the next request of a method until the returned function
// lets it go to the server, whether or not its client still waits for it.
func (w *wire) holdNext(method string) (let func()) {
	hold := make(chan struct{})
	w.set(func(w *wire) { w.hold, w.method = hold, method })
	return sync.OnceFunc(func() { close(hold) })
}

// delayWatches holds back the next stream of watches until the returned function
// lets it go on.
func (w *wire) delayWatches() (let func()) {
	wait := make(chan struct{})
	w.set(func(w *wire) { w.watches = wait })
	return sync.OnceFunc(func() { close(wait) })
}

// holds tells whether a call is to be held back, and until when.
func (w *wire) holds(method string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold == nil || !strings.HasSuffix(method, w.method) {
		return nil
	}
	hold := w.hold
	w.hold, w.held = nil, w.held+1
	return hold
}
