// SPDX-License-Identifier: MIT

package pgtx

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/idempotency"
)

// BatchKeyWait is how long a batch waits for a transaction that inserts one of its keys, for each key.
const BatchKeyWait = 100 * time.Millisecond

// commitTrust is how much of a lease must be left before the keys and COMMIT are sent: the wait for one key, and a COMMIT.
const commitTrust = BatchKeyWait * 3 / 2

// Result is the result of one request of a batch. A reply is stored if there is no error.
type Result struct {
	Reply idempotency.Reply
	Err   error
}

// RunAll runs several requests in one transaction, and returns a result for each. Its error is that of
// the transaction, and of all requests.
//
// lock queues the statements that lock rows. Then the replies that are stored are read, in a statement after
// the wait for the locks. body gets the indexes of the other requests, and returns their results in the same order.
// The replies without an error are stored in the transaction, under their keys, before the writes that body
// left queued. Each request must have all its parts (Check). Whatever body queues is committed: for a refusal, and for a
// request with an error, it must have queued nothing.
//
// A transaction that inserts one of the keys at this moment delays all requests, so RunAll waits for each key no longer
// than BatchKeyWait. After that the error matches idempotency.ErrInProgress, and nothing was committed.
//
// Of requests with the same key the first is run. The others get its reply, or ErrKeyReused, or
// ErrInProgress if the first was not stored.
//
// If COMMIT is not answered, RunAll returns locking.ErrOutcomeUnknown for all requests, so that its caller can give up
// its lease before the transaction is run again. It marks each of these requests as undecided (Op.Unknown), until a later
// Run or RunAll returns its result. The statements of lock must lock at least one row: then the second transaction waits until
// the first has ended, and only after that reads which replies are stored.
//
// If ctx is that of a lease (locking.Do), and too little of it is left when the keys and COMMIT would be sent, RunAll returns
// locking.ErrLost, and nothing was committed: after a long wait for a row, COMMIT would have no time to be answered.
//
// label is that of the transaction.
func (db *DB) RunAll(ctx context.Context, label string, requests []*Op, lock func(*Tx),
	body func(ctx context.Context, tx *Tx, open []int) ([]Result, error),
) (results []Result, err error) {
	for _, r := range requests {
		if err := r.Check(); err != nil {
			return nil, err
		}
	}
	op := &Op{Label: label} // without a key: Run ends at a COMMIT without an answer
	_, err = db.Run(ctx, op, func(ctx context.Context, tx *Tx) (idempotency.Reply, error) {
		lock(tx)
		var open []int
		if results, open, err = tx.replies(ctx, requests); err != nil {
			return idempotency.Reply{}, err
		}
		made, err := body(ctx, tx, open)
		if err != nil {
			return idempotency.Reply{}, err
		}
		if len(made) != len(open) {
			return idempotency.Reply{}, fmt.Errorf("pgtx: %d results for %d requests", len(made), len(open))
		}
		for i, n := range open {
			results[n] = made[i]
		}
		if !locking.Trusted(ctx, commitTrust) {
			return idempotency.Reply{}, cmp.Or(context.Cause(ctx), fmt.Errorf("%w: pgtx: less than %v was left of the lease before COMMIT", locking.ErrLost, commitTrust))
		}
		if err := tx.storeAll(ctx, requests, results, open); err != nil {
			return idempotency.Reply{}, err
		}
		share(requests, results, open)
		return idempotency.Reply{}, nil
	})
	if err == nil && slices.ContainsFunc(requests, (*Op).Unknown) {
		db.cfg.Count(Resolved, label)
	}
	if err == nil || op.unknown {
		for _, r := range requests {
			r.unknown = op.unknown
		}
	}
	return results, err
}

// OfOne reports whether RunAll may have failed with err because of one of the requests: another transaction has its key,
// or PostgreSQL refuses its data. Then the other requests may succeed without it.
func OfOne(err error) bool {
	if errors.Is(err, idempotency.ErrInProgress) {
		return true
	}
	for _, whole := range []error{locking.ErrBusy, locking.ErrLost, locking.ErrStale, locking.ErrOutcomeUnknown, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, whole) {
			return false
		}
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return true // such as a value that pgx cannot encode
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "22", "23", "44", "54", "P0": // data, integrity constraint, check option, program limit, raised by a trigger
		return true
	}
	return false
}

// Doubt makes op undecided: a transaction that it was part of may have been committed. The next Run decides it.
func (op *Op) Doubt() { op.unknown = true }

// replies sends the queued statements, and then reads the stored replies. open are the requests without one, the
// first of each key.
func (t *Tx) replies(ctx context.Context, requests []*Op) (results []Result, open []int, err error) {
	clients, keys := make([][16]byte, len(requests)), make([]string, len(requests)) // pgx encodes [16]byte faster than uuid.UUID
	for n, r := range requests {
		clients[n], keys[n] = r.Client, r.Key
	}
	type row struct {
		N           int
		Fingerprint []byte
		Status      int
		Body        []byte
		Header      map[string]string
	}
	// LIMIT keeps the planner from joining with a scan of the table, which grows: it looks up each key in the index.
	rows, err := Select[row](ctx, t, `
		SELECT asked.n, stored.*
		FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS asked (client_id, key, n)
		CROSS JOIN LATERAL (
			SELECT fingerprint, status, body, header
			FROM idempotency_keys
			WHERE client_id = asked.client_id AND key = asked.key
			LIMIT 1) AS stored`, clients, keys)
	if err != nil {
		return nil, nil, err
	}
	if len(rows) > 0 {
		t.Queue(barrier) // the locks have written nothing if they found no row
	}
	results = make([]Result, len(requests))
	closed := make(map[primaryKey]bool, len(requests))
	for _, r := range rows {
		n := r.N - 1
		closed[primaryKeyOf(requests[n].Request)] = true
		if results[n].Reply = (idempotency.Reply{Status: r.Status, Body: r.Body, Header: r.Header, Replayed: true}); !bytes.Equal(r.Fingerprint, requests[n].Fingerprint[:]) {
			results[n] = Result{Err: idempotency.ErrKeyReused}
		}
	}
	for n, r := range requests {
		if !closed[primaryKeyOf(r.Request)] {
			closed[primaryKeyOf(r.Request)] = true
			open = append(open, n)
		}
	}
	return results, open, nil
}

// primaryKey is that of a row of idempotency_keys.
type primaryKey struct {
	client uuid.UUID
	key    string
}

func primaryKeyOf(r idempotency.Request) primaryKey { return primaryKey{r.Client, r.Key} }

// storeAll queues the INSERT of all keys before the statements queued so far. Every batch inserts its keys in the same
// order, by client and then by key, so that two batches with the same keys do not deadlock.
func (t *Tx) storeAll(ctx context.Context, requests []*Op, results []Result, open []int) error {
	stored := slices.DeleteFunc(slices.Clone(open), func(n int) bool { return results[n].Err != nil })
	slices.SortFunc(stored, func(a, b int) int {
		return cmp.Or(bytes.Compare(requests[a].Client[:], requests[b].Client[:]), strings.Compare(requests[a].Key, requests[b].Key))
	})
	writes := t.queue
	t.queue = nil
	if len(stored) > 0 {
		clients, keys := make([][16]byte, len(stored)), make([]string, len(stored))
		fingerprints, statuses, bodies := make([][]byte, len(stored)), make([]int32, len(stored)), make([][]byte, len(stored))
		headers := make([]map[string]string, len(stored))
		for i, n := range stored {
			r, reply := requests[n], results[n].Reply
			if err := reply.Check(); err != nil {
				return err
			}
			clients[i], keys[i], fingerprints[i], statuses[i] = r.Client, r.Key, r.Fingerprint[:], int32(reply.Status)
			bodies[i], headers[i] = append([]byte{}, reply.Body...), reply.Header // the body is never NULL
		}
		t.Queue("SET LOCAL lock_timeout = " + milliseconds(BatchKeyWait))
		t.insertKey(InsertKeys, clients, keys, fingerprints, statuses, bodies, headers)
	}
	if err := t.Step(ctx, AfterKey); err != nil {
		return err
	}
	t.queue = append(t.queue, writes...)
	return nil
}

// InsertKeys is the statement that stores the keys of several requests, with their replies: fault tests recognize it in
// the traffic to a server.
const InsertKeys = `
	INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, header)
	SELECT * FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::integer[], $5::bytea[], $6::jsonb[])`

// share gives the requests whose key another request of the batch has the result of that one.
func share(requests []*Op, results []Result, open []int) {
	first := make(map[primaryKey]int, len(open))
	for _, n := range open {
		first[primaryKeyOf(requests[n].Request)] = n
	}
	for n, r := range requests {
		switch of, ok := first[primaryKeyOf(r.Request)]; {
		case !ok || of == n:
		case results[of].Err != nil:
			results[n] = Result{Err: idempotency.ErrInProgress}
		case requests[of].Fingerprint != r.Fingerprint:
			results[n] = Result{Err: idempotency.ErrKeyReused}
		default:
			results[n] = Result{Reply: results[of].Reply}
			results[n].Reply.Replayed = true
		}
	}
}
