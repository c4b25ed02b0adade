// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"shop/locking/idempotency/pgtx"
)

// authenticate finds the client by its key, before the body is read. All refusals
// look the same to the client.
func (s *Server) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		op := operationOf(c)
		if op.public {
			return next(c)
		}
		r := c.Request()
		if callerOf(r.Context()).ID != uuid.Nil && !op.admin { // of As
			return next(c)
		}
		key, ok := bearer(r.Header)
		if !ok {
			return errUnauthorized
		}
		client, err := s.keyring.client(r.Context(), key, c.RealIP())
		if err != nil {
			return err
		}
		// Before any refusal, so that its log line names the client.
		c.SetRequest(r.WithContext(context.WithValue(r.Context(), callerKey{}, client)))
		if op.admin && !client.Admin {
			return errForbidden
		}
		return next(c)
	}
}

// bearer reads Authorization: Bearer KEY, the scheme in any case. Two such headers
// are ambiguous and count as none.
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	key = strings.TrimLeft(key, " ")
	return key, strings.EqualFold(scheme, "Bearer") && plausible(key)
}

// As returns a handler that serves every request as a client's, without an API key. It is for pages of the same
// process that have decided which client it is.
func (s *Server) As(client uuid.UUID) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, Client{ID: client})))
	})
}

type callerKey struct{}

// callerOf returns the client of the request, or the zero Client on public routes.
func callerOf(ctx context.Context) Client {
	client, _ := ctx.Value(callerKey{}).(Client)
	return client
}

// The keyring trusts a key for keyTTL after its lookup, so a rotated key may work for
// that long. Unknown keys are not cached: they could fill it.
const (
	keyTTL      = 5 * time.Second
	keyringSize = 4096
	lookupsMax  = 4 // concurrent lookups of keys that were never valid here; as many for keys that were
)

// keyring caches the lookups of API keys by hash. A stale entry still shows that the key
// was valid: its next lookup does not wait behind lookups of unknown keys, and is exempt
// from the failure limit of its remote address.
type keyring struct {
	pool     *pgxpool.Pool
	now      func() time.Time
	failures *rates[netip.Prefix] // unknown keys, by remote address
	unknown  chan struct{}        // slots for lookups of keys without an entry
	known    chan struct{}        // slots for lookups of keys with a stale entry
	mu       sync.Mutex
	held     map[[32]byte]heldKey
}

type heldKey struct {
	client Client
	until  time.Time
}

func newKeyring(pool *pgxpool.Pool, failuresPerSecond float64) *keyring {
	return &keyring{
		pool: pool, now: time.Now, failures: newRates[netip.Prefix](failuresPerSecond),
		unknown: make(chan struct{}, lookupsMax), known: make(chan struct{}, lookupsMax),
		held: map[[32]byte]heldKey{},
	}
}

// client finds the client of a key, and returns errUnauthorized for an unknown key. A
// request that waited for a slot uses the entry of an earlier lookup of the same key.
func (k *keyring) client(ctx context.Context, key, remote string) (Client, error) {
	hash := sha256.Sum256([]byte(key))
	client, fresh, known := k.entry(hash)
	if fresh {
		return client, nil
	}
	slots := k.known
	if !known {
		slots = k.unknown
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return Client{}, fmt.Errorf("%w: waiting to look up a key: %w", errAway, ctx.Err())
	}
	if client, fresh, _ = k.entry(hash); fresh {
		return client, nil
	}
	failures := k.failures.bucket(network(remote))
	if !known && failures.Tokens() < 1 {
		return Client{}, errUnknownKeys
	}
	client, err := k.lookUp(ctx, hash)
	if errors.Is(err, errUnauthorized) {
		failures.Reserve() // may go into debt: concurrent lookups have seen the same token
	}
	return client, err
}

// lookUp queries the database. keyTTL starts before the query, so that a key that is
// rotated during the query is trusted no longer than others.
func (k *keyring) lookUp(ctx context.Context, hash [32]byte) (Client, error) {
	until := k.now().Add(keyTTL)
	client, err := findClient(ctx, k.pool, hash[:])
	k.mu.Lock() // not during the query: one slow lookup must not delay the others
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

// entry returns the client of a cached key: known if there is an entry, fresh if it may
// be trusted.
func (k *keyring) entry(hash [32]byte) (client Client, fresh, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, known := k.held[hash]
	return h.client, known && k.now().Before(h.until), known
}

// network is the unit by which failures are counted: an IPv4 address or an IPv6 /64.
func network(remote string) netip.Prefix {
	addr, _ := netip.ParseAddr(remote)
	bits := 64
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		bits = 32
	}
	prefix, _ := addr.Prefix(bits)
	return prefix
}
