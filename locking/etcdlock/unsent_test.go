// SPDX-License-Identifier: MIT

package etcdlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

func TestNew_WithoutAClientIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := New(t.Context(), nil, time.Minute, Options{}); !errors.Is(err, locking.ErrNoClient) {
		t.Errorf("got %v, want ErrNoClient", err)
	}
}

func TestNew_ThatIsRefusedNamesTheAddressAndTheCauseAtOnce(t *testing.T) {
	t.Parallel()
	addr := servertest.FreeAddr(t)
	client, err := clientv3.New(quiet(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	asked := time.Now()
	_, err = New(t.Context(), client, 30*time.Second, Options{})
	if took := time.Since(asked); took > 5*time.Second {
		t.Errorf("refused after %v", took)
	}
	if err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "epoch") {
		t.Errorf("got %v, want %s and the cause", err, addr)
	}
}

// A request that finds no connection was not sent, and its outcome is not unknown.
func TestTryAcquire_ThatFindsNoConnectionIsNotUnknown(t *testing.T) {
	t.Parallel()
	p := servertest.NewProxy(t, endpoints(t)[0])
	store := at(t, p.Addr).must(t, 6*time.Second)
	locktest.Taken(t, store, "warm")
	p.Down()
	var err error
	locktest.Eventually(t, "an error with the cause, and no unknown outcome", func() bool {
		_, err = store.TryAcquire(t.Context(), "k")
		return err == nil || !errors.Is(err, locking.ErrOutcomeUnknown) && strings.Contains(err.Error(), "connection refused")
	})
	if err == nil || errors.Is(err, locking.ErrBusy) || strings.Contains(err.Error(), "was sent") {
		t.Errorf("got %v, although no request was sent", err)
	}
}

// The end of the client is the end of the Store: no request waits for a time-out, and the client logs none again and again.
func TestClose_AfterThatOfItsClientIsQuickAndQuiet(t *testing.T) {
	t.Parallel()
	core, lines := observer.New(zapcore.WarnLevel)
	config := quiet(endpoints(t)...)
	config.Logger = zap.New(core)
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	store, err := New(t.Context(), client, 6*time.Second, Options{Prefix: shared(t).prefix})
	if err != nil {
		t.Fatal(err)
	}
	lease := locktest.Taken(t, store, "k")
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	_, tried := store.TryAcquire(t.Context(), "other")
	_, waited := store.Acquire(t.Context(), "other")
	_, renewed := store.Renew(t.Context(), lease)
	for what, err := range map[string]error{"try": tried, "wait": waited, "renew": renewed, "release": store.Release(t.Context(), lease)} {
		if err == nil || errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%s: got %v, want an error that says what is closed", what, err)
		}
	}
	store.Close()
	if took := time.Since(asked); took > 1500*time.Millisecond {
		t.Errorf("took %v", took)
	}
	if n := lines.Len(); n > 5 {
		t.Errorf("%d lines in the client's log, such as %q", n, lines.All()[0].Message)
	}
}
