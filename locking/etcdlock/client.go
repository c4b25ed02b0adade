package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Config is what a client for locks needs; add TLS, a user, a Logger:
//
//	client, err := clientv3.New(etcdlock.Config("127.0.0.1:2379"))
//
// A connection that died in silence is given up after 15 s: a watch would wait
// on it for ever. (Pings more often than every 10 s are not sent by gRPC, and
// more often than every 5 s not taken by etcd.) The client does not connect yet.
func Config(endpoints ...string) clientv3.Config {
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
	}
}

// patience is how long one request is waited for: three fit into a TTL.
func patience(ttl time.Duration) time.Duration { return ttl / 3 }

// margin is what Until leaves of a TTL for clocks that run at different rates.
func margin(ttl time.Duration) time.Duration { return ttl / 100 }

// within bounds one request. A member that knows of no leader is to say so,
// instead of holding the request back: the error then means that nothing happened.
//
// It is a timer and not a deadline, which gRPC would send along for the server
// to keep a timer as well, at a fiftieth of the cost of a request.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	timer := time.AfterFunc(d, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// reconnect lets the client try again to connect now: its own pause between two
// tries grows to two minutes.
func (s *Store) reconnect() { s.client.ActiveConnection().ResetConnectBackoff() }

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
