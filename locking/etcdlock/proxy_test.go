package etcdlock

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// rpcProxy stands between a client and a real etcd and disturbs single requests:
// on one connection many run at once, so it has to speak gRPC to tell them
// apart. What is in them it passes on as bytes.
type rpcProxy struct {
	server  *grpc.Server
	addr    string
	backend *grpc.ClientConn

	mu    sync.Mutex
	lose  int           // answers still to lose
	loses string        // how the name of a method ends of which answers are lost; "": of any
	lost  int           // answers lost so far
	said  error         // instead of a lost answer; nil: silence
	delay time.Duration // of each answer

	method string          // whose next request is to be held back,
	hold   <-chan struct{} // until this closes
	held   int             // requests held back so far
	served int             // … and let go, and answered

	watches <-chan struct{} // until it closes, no watch begins
	txns    int             // transactions so far
	streams int             // of watches so far
}

func newProxy(t testing.TB, target string) *rpcProxy {
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
	w := &rpcProxy{addr: listener.Addr().String(), backend: backend}
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

func (w *rpcProxy) set(change func(*rpcProxy)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

func (w *rpcProxy) loseNext(n int) { w.set(func(w *rpcProxy) { w.lose, w.loses = n, "" }) }

// loseTxn loses the answer to the next transaction, and says that instead; nil: silence.
// A keep-alive, which comes when it wants to, keeps its answer.
func (w *rpcProxy) loseTxn(said error) {
	w.set(func(w *rpcProxy) { w.lose, w.loses, w.said = 1, "/Txn", said })
}

func (w *rpcProxy) delayEach(d time.Duration) { w.set(func(w *rpcProxy) { w.delay = d }) }

func (w *rpcProxy) lostSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.lost }); return n }

func (w *rpcProxy) heldSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.held }); return n }

func (w *rpcProxy) txnsSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.txns }); return n }

func (w *rpcProxy) streamsSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.streams }); return n }

func (w *rpcProxy) servedSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.served }); return n }

// holdNext holds back the next request of a method until the returned function
// lets it go to the server, whether or not its client still waits for it.
func (w *rpcProxy) holdNext(method string) (let func()) {
	hold := make(chan struct{})
	w.set(func(w *rpcProxy) { w.hold, w.method = hold, method })
	return sync.OnceFunc(func() { close(hold) })
}

// delayWatches holds back the next stream of watches until the returned function
// lets it go on.
func (w *rpcProxy) delayWatches() (let func()) {
	wait := make(chan struct{})
	w.set(func(w *rpcProxy) { w.watches = wait })
	return sync.OnceFunc(func() { close(wait) })
}

// holds tells whether a call is to be held back, and until when.
func (w *rpcProxy) holds(method string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold == nil || !strings.HasSuffix(method, w.method) {
		return nil
	}
	hold := w.hold
	w.hold, w.held = nil, w.held+1
	return hold
}

// pass carries one call of any method, be it one request or a stream of them.
func (w *rpcProxy) pass(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	incoming, _ := metadata.FromIncomingContext(client.Context())
	var first []byte
	if err := client.RecvMsg(&first); err != nil {
		return err
	}
	if strings.HasSuffix(method, "/Txn") {
		w.set(func(w *rpcProxy) { w.txns++ })
	}
	if hold := w.holds(method); hold != nil {
		<-hold
		var answer []byte
		ctx := metadata.NewOutgoingContext(context.Background(), incoming)
		if err := w.backend.Invoke(ctx, method, first, &answer); err != nil {
			return err
		}
		w.set(func(w *rpcProxy) { w.served++ })
		return client.SendMsg(answer)
	}
	if strings.HasSuffix(method, "/Watch") {
		var wait <-chan struct{}
		w.set(func(w *rpcProxy) {
			w.streams++
			if wait = w.watches; wait != nil {
				w.held++
			}
		})
		if wait != nil {
			<-wait
		}
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(client.Context(), incoming))
	defer cancel()
	server, err := w.backend.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	doomed := make(chan bool, 64)                        // for each request: is its answer to be lost
	go w.requests(method, first, client, server, doomed) // ends with the call
	return w.answers(client, server, doomed)
}

// requests carries what the client sends.
func (w *rpcProxy) requests(method string, message []byte, client grpc.ServerStream, server grpc.ClientStream, doomed chan<- bool) {
	for {
		lose := false
		w.set(func(w *rpcProxy) {
			if lose = w.lose > 0 && strings.HasSuffix(method, w.loses); lose {
				w.lose--
			}
		})
		doomed <- lose
		if err := server.SendMsg(message); err != nil {
			return
		}
		if err := client.RecvMsg(&message); err != nil {
			_ = server.CloseSend()
			return
		}
	}
}

// answers carries what the server sends.
func (w *rpcProxy) answers(client grpc.ServerStream, server grpc.ClientStream, doomed <-chan bool) error {
	for {
		var message []byte
		err := server.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		lost := false
		select {
		case lost = <-doomed:
		default: // an answer of its own accord: a watch
		}
		if lost {
			var said error
			w.set(func(w *rpcProxy) { w.lost++; said = w.said })
			if said != nil {
				return said
			}
			<-client.Context().Done()
			return client.Context().Err()
		}
		var delay time.Duration
		w.set(func(w *rpcProxy) { delay = w.delay })
		if !sleep(client.Context(), delay) {
			return client.Context().Err()
		}
		if err := client.SendMsg(message); err != nil {
			return err
		}
	}
}

// asBytes is the codec that leaves messages as they are.
type asBytes struct{}

func (asBytes) Name() string { return "proto" }

func (asBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (asBytes) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
