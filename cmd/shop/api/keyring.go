package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency/pgtx"
)

// The keyring trusts a key for keyTTL from the moment it was looked up: for so
// long a key that was rotated may still work here. Unknown keys are not
// remembered, or strangers could fill it.
const (
	keyTTL      = 5 * time.Second
	keyringSize = 4096
	lookupsMax  = 4 // at once: of keys that were never valid here, and as many of those that were
)

// keyring keeps the lookups of API keys for a moment, by hash. An entry that is
// too old says at least that the key was valid: its next lookup does not wait
// behind those of strangers, and no failures of its remote address count against it.
type keyring struct {
	pool      *pgxpool.Pool
	now       func() time.Time
	failures  *rates[netip.Prefix] // unknown keys, by remote address
	strangers chan struct{}        // slots for lookups of keys that are not held
	known     chan struct{}        // … of keys that are held, and too old
	mu        sync.Mutex
	held      map[[32]byte]heldKey
}

type heldKey struct {
	client Client
	until  time.Time
}

func newKeyring(pool *pgxpool.Pool, failuresPerSecond float64) *keyring {
	return &keyring{
		pool: pool, now: time.Now, failures: newRates[netip.Prefix](failuresPerSecond),
		strangers: make(chan struct{}, lookupsMax), known: make(chan struct{}, lookupsMax),
		held: map[[32]byte]heldKey{},
	}
}

// client says whose key it is: errUnauthorized if nobody's. Requests that wait
// for a slot with the same key need one lookup: the others find it held.
func (k *keyring) client(ctx context.Context, key, remote string) (Client, error) {
	hash := sha256.Sum256([]byte(key))
	client, fresh, known := k.look(hash)
	if fresh {
		return client, nil
	}
	slots := k.known
	if !known {
		slots = k.strangers
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return Client{}, fmt.Errorf("%w: waiting to look up a key: %w", errAway, ctx.Err())
	}
	if client, fresh, _ = k.look(hash); fresh {
		return client, nil
	}
	failures := k.failures.bucket(network(remote))
	if !known && failures.Tokens() < 1 {
		return Client{}, errStranger
	}
	client, err := k.lookUp(ctx, hash)
	if errors.Is(err, errUnauthorized) {
		failures.Reserve() // into debt: lookups at the same time have seen the same token
	}
	return client, err
}

// lookUp asks the database. The time of trust begins before the question: a key
// that is rotated while the answer is on its way lives no longer than others.
func (k *keyring) lookUp(ctx context.Context, hash [32]byte) (Client, error) {
	until := k.now().Add(keyTTL)
	client, err := findClient(ctx, k.pool, hash[:])
	k.mu.Lock() // not held while asking: one slow lookup must not stop the others
	defer k.mu.Unlock()
	switch {
	case errors.Is(err, errUnauthorized):
		delete(k.held, hash)
		return Client{}, err
	case err != nil && (ctx.Err() != nil || pgtx.Unavailable(err)):
		return Client{}, fmt.Errorf("%w: %w", errAway, err)
	case err != nil:
		return Client{}, err
	}
	if len(k.held) >= keyringSize {
		clear(k.held)
	}
	k.held[hash] = heldKey{client: client, until: until}
	return client, nil
}

// look says whether the key is held, and whether that may be trusted.
func (k *keyring) look(hash [32]byte) (client Client, fresh, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, known := k.held[hash]
	return h.client, known && k.now().Before(h.until), known
}

// network is what failures are counted by: an address, or the /64 that a machine has in IPv6.
func network(remote string) netip.Prefix {
	addr, _ := netip.ParseAddr(remote)
	bits := 64
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		bits = 32
	}
	prefix, _ := addr.Prefix(bits)
	return prefix
}
