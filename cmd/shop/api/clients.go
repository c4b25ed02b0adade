// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/text/secure/precis"

	"shop/locking/migrate"
)

// Client is a stored client of the API.
type Client struct {
	ID        uuid.UUID
	Name      string
	Admin     bool
	CreatedAt time.Time
}

// Errors of the table clients.
var (
	ErrClientExists = errors.New("api: client exists")
	ErrNoClient     = errors.New("api: no such client")
	ErrClientName   = errors.New("api: a client's name has 1 to 64 bytes of UTF-8, without control or invisible characters, and no blank at its ends or beside another")
)

// keyPrefix lets scanners for leaked secrets find keys of the shop.
const keyPrefix = "shop_"

// newKey makes an API key of 256 random bits. A key with that entropy cannot be
// guessed, so its hash need not be slow: SHA-256 is enough.
func newKey() string {
	bits := make([]byte, 32)
	_, _ = rand.Read(bits) // never returns an error: it crashes the process instead
	return keyPrefix + base64.RawURLEncoding.EncodeToString(bits)
}

// plausible checks the form of a key, so that a malformed one costs no query.
func plausible(key string) bool {
	return len(key) == len(keyPrefix)+base64.RawURLEncoding.EncodedLen(32) && strings.HasPrefix(key, keyPrefix)
}

func hashKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

// clientName returns the one form of a name (Unicode NFC), so that no two names look alike for their spelling alone, and
// each is one line of a list.
func clientName(name string) (string, error) {
	one, err := precis.OpaqueString.String(name)
	if err != nil || !utf8.ValidString(name) || len(one) > 64 || one != strings.Join(strings.Fields(one), " ") {
		return "", fmt.Errorf("%w: %q", ErrClientName, name)
	}
	return one, nil
}

// AddClient creates a client and returns its id and key. The key cannot be read again.
func AddClient(ctx context.Context, pool *pgxpool.Pool, name string, admin bool) (uuid.UUID, string, error) {
	name, err := clientName(name)
	if err != nil {
		return uuid.Nil, "", err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, "", fmt.Errorf("api: add client %q: %w", name, err)
	}
	key := newKey()
	_, err = pool.Exec(ctx, `
		INSERT INTO clients (id, name, key_sha256, admin)
		VALUES ($1, $2, $3, $4)`,
		id, name, hashKey(key), admin)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.ConstraintName == "clients_name_key" {
		return uuid.Nil, "", fmt.Errorf("%w: %q", ErrClientExists, name)
	}
	if err != nil {
		return uuid.Nil, "", fmt.Errorf("api: add client %q: %w", name, err)
	}
	return id, key, nil
}

// RotateKey gives a client a new key. Replicas may accept the old key from their caches
// for up to keyTTL. A name that the table has as it stands, such as an old one with a blank at its end, is taken first.
func RotateKey(ctx context.Context, pool *pgxpool.Pool, name string) (string, error) {
	key := newKey()
	one, err := clientName(name)
	if err != nil {
		one = name
	}
	tag, err := pool.Exec(ctx, `
		UPDATE clients SET key_sha256 = $3
		WHERE name = (SELECT name FROM clients WHERE name IN ($1, $2) ORDER BY name <> $1 LIMIT 1)`,
		name, one, hashKey(key))
	if err != nil {
		return "", fmt.Errorf("api: rotate the key of %q: %w", name, err)
	}
	if tag.RowsAffected() == 0 {
		return "", fmt.Errorf("%w: %q", ErrNoClient, name)
	}
	return key, nil
}

// clientsPage is how many clients a statement reads.
const clientsPage = 10_000

// Clients lists all clients by name. It reads pages: a statement for millions of clients would exceed its time limit.
func Clients(ctx context.Context, pool *pgxpool.Pool) (all []Client, err error) {
	for after := ""; ; after = all[len(all)-1].Name {
		rows, _ := pool.Query(ctx, `
			SELECT id, name, admin, created_at
			FROM clients
			WHERE name > $1
			ORDER BY name
			LIMIT $2`, after, clientsPage)
		page, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Client])
		if err != nil {
			return nil, fmt.Errorf("api: list clients: %w", err)
		}
		if all = append(all, page...); len(page) < clientsPage {
			return all, nil
		}
	}
}

// findClient finds a client by the hash of its key, through the unique index. The
// comparison need not take constant time: its duration reveals how many bytes of a
// guess's hash match a stored hash, which does not help to find the key.
func findClient(ctx context.Context, pool *pgxpool.Pool, keySHA256 []byte) (Client, error) {
	rows, _ := pool.Query(ctx, `
		SELECT id, name, admin, created_at
		FROM clients
		WHERE key_sha256 = $1`,
		pgx.QueryExecModeExec, keySHA256) // not prepared: no migration can break it
	client, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Client])
	if errors.Is(err, pgx.ErrNoRows) {
		return Client{}, errUnauthorized
	}
	if err != nil {
		return Client{}, fmt.Errorf("api: find client: %w", err)
	}
	return client, nil
}

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the tables of this package up to date. Several processes may run it at
// once.
func Migrate(ctx context.Context, databaseURL string) error {
	return migrate.Up(ctx, databaseURL, migrations, "goose_api_version")
}
