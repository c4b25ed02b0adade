// SPDX-License-Identifier: MIT

package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/driver"
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

// Store keeps locks in etcd. It is safe for concurrent use, and one is enough for a process. The caller owns the client, and
// closes it after the Store.
type Store struct {
	*driver.Store
	locks *locks
}

// New makes a Store whose leases last ttl. Of a grant, at least a quarter of it is left; Renew begins it anew. etcd must be
// available: if all endpoints refuse a connection, New fails at once.
// A TTL that etcd would round, or raise to its minimum of 1.5 elections (2 s with its defaults), is locking.ErrTTL.
func New(ctx context.Context, client *clientv3.Client, ttl time.Duration, o Options) (*Store, error) {
	if err := locking.CheckClient(client); err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	settings := driver.Options{Name: "etcdlock", TTL: ttl, TTLMin: time.Second, TTLUnit: time.Second, Limit: limit(ttl), Queues: true}
	if err := settings.Check(); err != nil {
		return nil, err
	}
	prefix, err := checkPrefix(o.Prefix)
	if err != nil {
		return nil, err
	}
	d := &locks{client: client, prefix: prefix, ttl: ttl, left: map[string][]*lease{}}
	opening, cancel := context.WithTimeout(ctx, ttl)
	defer cancel()
	if err = d.reach(opening, ttl/2); err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	if d.epoch, err = d.findEpoch(opening); err != nil {
		return nil, fmt.Errorf("etcdlock: find the epoch: %w", err)
	}
	d.sameEpoch = clientv3.Compare(clientv3.Value(epochKey(prefix)), "=", d.epoch.value)
	first, err := d.lease(opening)
	if err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	d.keepFree(first)
	store, err := driver.New(d, settings)
	return &Store{store, d}, err
}

// KeysMax is how many keys a lease may have. etcd accepts 128 operations in a
// transaction unless --max-txn-ops sets another limit, and Acquire needs two for each
// key.
const KeysMax = 128 / 2

// ErrTooManyKeys reports a request for more than KeysMax keys in one lease.
var ErrTooManyKeys = fmt.Errorf("%w: etcd takes %d at most", locking.ErrSeveralKeys, KeysMax)

// checkPrefix returns the prefix or its default. It refuses a colon: the first colon in
// a name has to be the one after the length.
func checkPrefix(prefix string) (string, error) {
	if strings.ContainsAny(prefix, ":\x00") {
		return "", fmt.Errorf("etcdlock: prefix %q has a colon, or NUL: a colon marks the length of a key", prefix)
	}
	return cmp.Or(prefix, "lock"), nil
}

// queueOf returns the prefix that the names of all waiters for a key share:
//
//	PREFIX/LENGTH:KEY/
//
// The length comes first, so that no queue's name is a prefix of another's, whatever
// bytes a key holds: "a" is 1:a/ and "a/b" is 3:a/b/. Names of other kinds have no
// digit in that position.
func (d *locks) queueOf(key string) string {
	return d.prefix + "/" + strconv.Itoa(len(key)) + ":" + key + "/"
}

// name is the name of a waiter for a key, or of its holder, with this lease of etcd.
func (d *locks) name(key string, id clientv3.LeaseID) string {
	return d.queueOf(key) + strconv.FormatInt(int64(id), 16)
}

// mark is what the owner of a grant ends with: NONCE/LEASE-FENCE.
func mark(id clientv3.LeaseID, fence int64) string {
	return strconv.FormatInt(int64(id), 16) + "-" + strconv.FormatInt(fence, 10)
}

// marked returns what mark has noted. False: etcd has granted nothing to this owner.
func marked(owner string) (id clientv3.LeaseID, fence int64, ok bool) {
	_, mark, _ := strings.Cut(owner, "/")
	left, right, _ := strings.Cut(mark, "-")
	lease, bad := strconv.ParseInt(left, 16, 64)
	fence, err := strconv.ParseInt(right, 10, 64)
	return clientv3.LeaseID(lease), fence, errors.Join(bad, err) == nil
}

// epochKey is the name of the epoch's value.
func epochKey(prefix string) string { return prefix + "/epoch" }
