package etcdlock

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// pass carries one call of any method, be it one request or a stream of them.
func (w *wire) pass(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	incoming, _ := metadata.FromIncomingContext(client.Context())
	var first []byte
	if err := client.RecvMsg(&first); err != nil {
		return err
	}
	if strings.HasSuffix(method, "/Txn") {
		w.set(func(w *wire) { w.txns++ })
	}
	if hold := w.holds(method); hold != nil {
		<-hold
		var answer []byte
		ctx := metadata.NewOutgoingContext(context.Background(), incoming)
		if err := w.backend.Invoke(ctx, method, first, &answer); err != nil {
			return err
		}
		w.set(func(w *wire) { w.served++ })
		return client.SendMsg(answer)
	}
	if strings.HasSuffix(method, "/Watch") {
		var wait <-chan struct{}
		w.set(func(w *wire) {
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
	doomed := make(chan bool, 64)                // for each request: is its answer to be lost
	go w.requests(first, client, server, doomed) // ends with the call
	return w.answers(client, server, doomed)
}

// requests carries what the client sends.
func (w *wire) requests(message []byte, client grpc.ServerStream, server grpc.ClientStream, doomed chan<- bool) {
	for {
		lose := false
		w.set(func(w *wire) {
			if lose = w.lose > 0; lose {
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
func (w *wire) answers(client grpc.ServerStream, server grpc.ClientStream, doomed <-chan bool) error {
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
			w.set(func(w *wire) { w.lost++; said = w.said })
			if said != nil {
				return said
			}
			<-client.Context().Done()
			return client.Context().Err()
		}
		var delay time.Duration
		w.set(func(w *wire) { delay = w.delay })
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
