// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"io"
	"net"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"shop/locking/driver"
)

// rpcProxy is between a client and a real etcd and disturbs single requests. Many of
// them share one connection, so it speaks gRPC to distinguish them. It forwards messages
// as bytes.
type rpcProxy struct {
	server  *grpc.Server
	addr    string
	backend *grpc.ClientConn

	mu    sync.Mutex
	lose  int           // answers still to lose
	loses string        // suffix of the methods whose answers are lost; "": all
	lost  int           // answers lost so far
	said  error         // returned instead of a lost answer; nil: no answer
	delay time.Duration // of each answer

	method string          // the suffix of the method whose next request is delayed
	hold   <-chan struct{} // … until this closes
	held   int             // requests delayed so far
	served int             // … and answered after that

	watches <-chan struct{} // until it closes, no watch starts
	patient map[string]int  // requests without WithRequireLeader so far, by method
	eager   map[string]int  // … and with it
	txns    int             // transactions so far
	streams int             // streams of watches so far
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
	w := &rpcProxy{addr: listener.Addr().String(), backend: backend, patient: map[string]int{}, eager: map[string]int{}}
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

// loseTxn loses the answer to the next transaction, and returns said instead; nil: no
// answer. It does not affect keep-alives, which are sent at any time.
func (w *rpcProxy) loseTxn(said error) {
	w.set(func(w *rpcProxy) { w.lose, w.loses, w.said = 1, "/Txn", said })
}

func (w *rpcProxy) delayEach(d time.Duration) { w.set(func(w *rpcProxy) { w.delay = d }) }

func (w *rpcProxy) lostSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.lost }); return n }

func (w *rpcProxy) heldSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.held }); return n }

func (w *rpcProxy) txnsSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.txns }); return n }

func (w *rpcProxy) streamsSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.streams }); return n }

func (w *rpcProxy) servedSoFar() (n int) { w.set(func(w *rpcProxy) { n = w.served }); return n }

// holdNext delays the next request of a method until the returned function is called.
// Then the request is sent to the server, whether or not its client still waits for it.
func (w *rpcProxy) holdNext(method string) (unblock func()) {
	hold := make(chan struct{})
	w.set(func(w *rpcProxy) { w.hold, w.method = hold, method })
	return sync.OnceFunc(func() { close(hold) })
}

// delayWatches delays the next stream of watches until the returned function is called.
func (w *rpcProxy) delayWatches() (unblock func()) {
	wait := make(chan struct{})
	w.set(func(w *rpcProxy) { w.watches = wait })
	return sync.OnceFunc(func() { close(wait) })
}

// holds returns the channel until whose close a call is delayed; nil: it is not.
func (w *rpcProxy) holds(method string) (hold <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold == nil || !strings.HasSuffix(method, w.method) {
		return nil
	}
	hold = w.hold
	w.hold, w.held = nil, w.held+1
	return hold
}

// pass forwards one call of any method, unary or streaming.
func (w *rpcProxy) pass(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	incoming, _ := metadata.FromIncomingContext(client.Context())
	var first []byte
	if err := client.RecvMsg(&first); err != nil {
		return err
	}
	w.set(func(w *rpcProxy) {
		if strings.HasSuffix(method, "/Txn") {
			w.txns++
		}
		seen := w.patient
		if len(incoming.Get(rpctypes.MetadataRequireLeaderKey)) > 0 {
			seen = w.eager
		}
		seen[path.Base(method)]++
	})
	if hold := w.holds(method); hold != nil {
		<-hold
		var answer []byte
		ctx := metadata.NewOutgoingContext(context.Background(), incoming)
		err := w.backend.Invoke(ctx, method, first, &answer)
		w.set(func(w *rpcProxy) { w.served++ })
		if err != nil {
			return err
		}
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
	doomed := make(chan bool, 64)                        // for each request: whether to lose its answer
	go w.requests(method, first, client, server, doomed) // ends with the call
	return w.answers(client, server, doomed)
}

// requests forwards the client's messages.
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

// answers forwards the server's messages.
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
		default: // a message without a request: an event of a watch
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
		if driver.Pause(client.Context(), delay); client.Context().Err() != nil {
			return client.Context().Err()
		}
		if err := client.SendMsg(message); err != nil {
			return err
		}
	}
}

// asBytes is a codec that does not decode messages.
type asBytes struct{}

func (asBytes) Name() string { return "proto" }

func (asBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (asBytes) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
