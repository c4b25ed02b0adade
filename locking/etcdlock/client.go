package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// Config returns the settings that a client for locks needs; add TLS, a user, a Logger:
//
//	client, err := clientv3.New(etcdlock.Config("127.0.0.1:2379"))
//
// The client drops a connection after 15 s without an answer: a watch would wait on it
// for ever. (gRPC does not send pings more often than every 10 s, and etcd does not
// accept them more often than every 5 s.) clientv3.New does not connect yet.
func Config(endpoints ...string) clientv3.Config {
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
	}
}

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins every name in etcd; empty: "lock". Stores exclude each other
	// only if they have the same Prefix.
	Prefix string
}

// ErrTTL reports that etcd would grant another TTL than the requested one.
var ErrTTL = errors.New("etcdlock: TTL must be whole seconds, and at least 1.5 times etcd's election timeout (2s with its defaults)")

// New makes a Store whose leases last ttl, and opens its session, so etcd must be
// available: if all endpoints refuse a connection, New fails at once. A TTL that etcd would round, or raise to its minimum, is ErrTTL.
func New(ctx context.Context, client *clientv3.Client, ttl time.Duration, o Options) (*Store, error) {
	if err := locking.CheckClient(client); err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	if ttl < time.Second || ttl%time.Second != 0 {
		return nil, fmt.Errorf("%w: %v", ErrTTL, ttl)
	}
	prefix, err := checkPrefix(o.Prefix)
	if err != nil {
		return nil, err
	}
	s := &Store{
		client: client, prefix: prefix, ttl: ttl, trust: ttl - margin(ttl),
		tried: make(chan struct{}), grants: map[string]*grant{}, passed: map[string]*attempt{}, rivals: map[string]bool{},
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	if err = s.reach(ctx, requestTimeout(ttl)); err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	if s.epoch, err = s.findEpoch(ctx); err != nil {
		return nil, fmt.Errorf("etcdlock: find the epoch: %w", err)
	}
	s.sameEpoch = clientv3.Compare(clientv3.Value(epochKey(prefix)), "=", s.epoch.value)
	first, err := s.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcdlock: open a session: %w", err)
	}
	s.unwatch = context.AfterFunc(client.Ctx(), s.abort)
	s.work.Go(func() { s.run(first) })
	return s, nil
}

// checkPrefix returns the prefix or its default. It refuses a colon: the first colon in
// a name has to be the one after the length.
func checkPrefix(prefix string) (string, error) {
	if strings.ContainsAny(prefix, ":\x00") {
		return "", fmt.Errorf("etcdlock: prefix %q has a colon, or NUL: a colon marks the length of a key", prefix)
	}
	return cmp.Or(prefix, "lock"), nil
}

// margin is how much earlier than the TTL a lease's Until is, for clocks that run at
// different rates.
func margin(ttl time.Duration) time.Duration { return ttl / 100 }
