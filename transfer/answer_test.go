package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgproto3"

	"shop/transfer"
)

// The client leaves after COMMIT was sent, and before it is answered. Nobody
// heeds that any more: the answer is waited for, and the transfer stands.
func TestCommit_IsWaitedForAlsoWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			withheld, answer := make(chan struct{}), make(chan struct{})
			b, p, _, start := armed(t, strategy, func(px *proxy) {
				px.armAnswer(func(committed []byte, client, _ net.Conn) {
					close(withheld)
					<-answer
					_, _ = client.Write(committed)
				})
			})
			letGo := sync.OnceFunc(func() { close(answer) })
			t.Cleanup(letGo) // before the proxy's, which waits
			carol := b.account(p.alice, 100)
			freeCarol := b.holding(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, carol)
			defer freeCarol()
			row := b.with("row")

			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req := ask(p.alice)
			start.Store(true)
			done := beside(func() (transfer.Reply, error) { return b.Transfer(ctx, req, p.move(30)) })
			select {
			case <-withheld:
			case o := <-done:
				t.Fatalf("it ended before its COMMIT was answered: %+v, %v", o.reply, o.err)
			}
			// Whoever waits on this ctx has left when the bystander has.
			bystander := beside(func() (transfer.Reply, error) { return row.Transfer(ctx, ask(p.alice), euros(carol, p.b, 1)) })
			eventually(t, "the bystander waits", func() bool { return b.waiting() > 0 })
			leave()
			if o := <-bystander; !errors.Is(o.err, context.Canceled) {
				t.Errorf("the bystander: %+v, %v, want it cancelled", o.reply, o.err)
			}
			b.mustHave(p.a, 968, 0) // committed, whatever the client knows
			b.mustHold()
			letGo()

			reply, err := (<-done).pair()
			if err != nil || reply.Status != 201 || reply.Replayed {
				t.Errorf("%+v, %v: want the answer of what was committed", reply, err)
			}
			if n := b.events.of(transfer.Ambiguous); n != 0 {
				t.Errorf("%d ambiguous: it was answered", n)
			}
			b.mustReplay(p, req, reply)
			b.mustHave(p.a, 968, 0)
		})
	}
}

// mustReplay checks that a repetition of the move of 30 gets the same answer.
func (b *bank) mustReplay(p pair, req transfer.Request, first transfer.Reply) {
	b.t.Helper()
	again, err := b.Transfer(b.t.Context(), req, p.move(30))
	if err != nil || !again.Replayed || again.Status != first.Status || !bytes.Equal(again.Body, first.Body) {
		b.t.Errorf("again: %+v, %v, want %+v", again, err, first)
	}
}

// A server that shuts down commits, and then says FATAL instead of COMMIT: not
// an answer to what was asked, and no refusal.
func TestCommit_ThatIsAnsweredByFatalMayHaveHappened(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b, p, _, start := armed(t, strategy, func(px *proxy) { px.armAnswer(fatalInstead(t)) })
			req := ask(p.alice)
			start.Store(true)
			reply, err := b.Transfer(t.Context(), req, p.move(30))
			b.mustBeResolved(reply, err)
			if n := b.number(`SELECT count(*) FROM transfers WHERE idempotency_key = $1 AND id = $2`, req.Key, uuid.MustParse(string(reply.Body))); n != 1 {
				t.Errorf("%+v is not what is stored", reply)
			}
			b.mustReplay(p, req, reply)
			b.mustHave(p.a, 968, 0)
			b.mustHave(p.b, 32, 0)
		})
	}
}

// fatalInstead lets the server execute all, and tells the client that it was shut down.
func fatalInstead(t *testing.T) fault {
	return func(answer []byte, client, server net.Conn) {
		defer client.Close()
		for buf := make([]byte, 4096); !bytes.HasSuffix(answer, []byte("Z\x00\x00\x00\x05I")); { // ReadyForQuery, idle: it is committed
			n, err := server.Read(buf)
			if err != nil {
				t.Errorf("the server ended in the middle of its answer: %v", err)
				return
			}
			answer = append(answer, buf[:n]...)
		}
		shutdown := pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01", Message: "terminating connection due to administrator command"}
		fatal, err := shutdown.Encode(nil)
		if err != nil {
			t.Error(err)
		}
		_, _ = client.Write(fatal)
	}
}
