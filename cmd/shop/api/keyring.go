package api

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The keyring trusts what it looked up for keyTTL: so long may a key that was
// taken away still work here. Unknown keys are not remembered, or strangers could fill it.
const (
	keyTTL      = 5 * time.Second
	keyringSize = 4096
)

// keyring keeps the lookups of API keys for a moment, by hash.
type keyring struct {
	pool *pgxpool.Pool
	mu   sync.Mutex
	held map[[32]byte]heldKey
}

type heldKey struct {
	client Client
	until  time.Time
}

func newKeyring(pool *pgxpool.Pool) *keyring {
	return &keyring{pool: pool, held: map[[32]byte]heldKey{}}
}

// client says whose key it is: errUnauthorized if nobody's.
func (k *keyring) client(ctx context.Context, key string) (Client, error) {
	hash := sha256.Sum256([]byte(key))
	if client, ok := k.look(hash); ok {
		return client, nil
	}
	client, err := findClient(ctx, k.pool, hash[:])
	if err != nil {
		return Client{}, err
	}
	k.mu.Lock() // not held while asking: one slow lookup must not stop everybody
	defer k.mu.Unlock()
	if len(k.held) >= keyringSize {
		clear(k.held)
	}
	k.held[hash] = heldKey{client: client, until: time.Now().Add(keyTTL)}
	return client, nil
}

func (k *keyring) look(hash [32]byte) (Client, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, ok := k.held[hash]
	return h.client, ok && time.Now().Before(h.until)
}
