// SPDX-License-Identifier: MIT

package mongolock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking"
	"shop/locking/servertest"
)

func TestNew_WithoutACollectionIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, time.Minute, Options{}); !errors.Is(err, locking.ErrNoClient) {
		t.Errorf("got %v, want ErrNoClient", err)
	}
}

// A request for which there is no server, or no client any more, was not sent, and its outcome is not unknown.
func TestTryAcquire_ThatFindsNoServerIsNotUnknown(t *testing.T) {
	t.Parallel()
	addr := servertest.FreeAddr(t)
	refused, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + addr + "/?directConnection=true"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = refused.Disconnect(within(t, 5*time.Second)) })
	gone := connect(t, mongoURL(t))
	if err := gone.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for says, client := range map[string]*mongo.Client{"connection refused": refused, "disconnected": gone} {
		store := storeOn(t, client.Database("d").Collection("c"), time.Second)
		_, err := store.TryAcquire(t.Context(), "k")
		if err == nil || errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q in it, and no unknown outcome", err, says)
		}
		if strings.Contains(err.Error(), "was sent") {
			t.Errorf("%q claims that the request was sent", err)
		}
	}
}
