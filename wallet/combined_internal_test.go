// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
)

// The Combiner does not release the lease of a batch whose second half has lost it: the outcome is unknown to it. Without
// a Release here no other request of the process would get its turn at the wallet.
func TestApplyTogether_ALostLeasePassesTheTurnOn(t *testing.T) {
	t.Parallel()
	for name, failpoint := range map[string]func(context.Context, Step, string){"before it": func(context.Context, Step, string) {}, "in the transaction": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := ClientOptions("mongodb://127.0.0.1:1") // nothing is sent to it
			if err != nil {
				t.Fatal(err)
			}
			client, err := mongo.Connect(o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) }()
			s, err := New(Config{Database: client.Database("none"), Strategy: nameCombined, Failpoint: failpoint})
			if err != nil {
				t.Fatal(err)
			}
			id, passed := uuid.New(), false
			s.turns = &turns{Service: s, held: map[string]func(){id.String(): func() { passed = true }}}
			ctx, lose := context.WithCancelCause(t.Context())
			lose(locking.ErrLost)
			if _, err := s.applyBatch(ctx, locking.Lease{Keys: []string{id.String()}}, []*operation{at(id)}); !errors.Is(err, locking.ErrLost) || !passed {
				t.Errorf("%v, the turn was passed on: %t; want ErrLost, true", err, passed)
			}
		})
	}
}
