// SPDX-License-Identifier: MIT

package pgtx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/idempotency"
)

// Event is an event that Config.Count receives.
type Event string

// The events.
const (
	Retried      Event = "retried"       // an attempt failed, and may be retried: serialization failure, deadlock, lost connection, ErrRetry
	GuardTripped Event = "guard_tripped" // a constraint of Config.Guards refused a write
	Ambiguous    Event = "ambiguous"     // a COMMIT was sent and not answered
	Resolved     Event = "resolved"      // … and its outcome is known now
)

// Body reads, decides, queues its writes, and returns the reply that is committed with them. It runs once for each
// attempt, and must not keep data from one attempt to the next. Any error rolls back. Errors of Tx must be returned as
// they are or wrapped, so that Run knows which of them to retry.
type Body func(ctx context.Context, tx *Tx) (idempotency.Reply, error)

// errRefused marks the reply of Refuse.
var errRefused = errors.New("pgtx: refused")

// Refuse returns a refusal ("out of stock") from a body. Everything that the body did is
// rolled back, and reply is committed with the key, to be replayed.
func Refuse(reply idempotency.Reply) (idempotency.Reply, error) { return reply, errRefused }

// Op is one request during Run. It keeps the state between the attempts, and from one Run to the next. Without a Key, for a
// batch job, no reply is stored, and Run returns locking.ErrOutcomeUnknown after a COMMIT without an answer: a second
// transaction could take effect again. Idempotent says that a second effect would change nothing: then it is run again.
type Op struct {
	idempotency.Request
	Idempotent bool
	Label      string        // for Config.Count and Config.Failpoint
	Begin      string        // "": BeginReadCommitted
	KeyWait    time.Duration // limit of the wait for another transaction with this key, and for each later lock; 0: LockTimeout

	// Deferred leaves BEGIN to the body (Tx.Begin). Statements flushed before that are committed on their own.
	Deferred bool

	unknown bool // an earlier COMMIT may have taken effect: no error may claim otherwise
}

// Unknown reports whether a COMMIT of this request was sent, not answered, and not decided yet.
func (op *Op) Unknown() bool { return op.unknown }

// DB runs transactions on a pool. It is safe for concurrent use.
type DB struct{ cfg Config }

// Do calls Lookup, and then Run if the key has no reply yet.
func (db *DB) Do(ctx context.Context, req idempotency.Request, body Body) (idempotency.Reply, error) {
	if err := req.Check(); err != nil {
		return idempotency.Reply{}, err
	}
	if reply, found, err := db.Lookup(ctx, req); found || err != nil {
		return reply, err
	}
	return db.Run(ctx, &Op{Request: req}, body)
}

// Run runs body in a transaction until its outcome is known, within bounds.
//
// A nil error means that the reply is committed under the request's key, by this
// Run or by an earlier request. The package comment lists the errors in a table.
func (db *DB) Run(ctx context.Context, op *Op, body Body) (idempotency.Reply, error) {
	if op.Key != "" {
		if err := op.Check(); err != nil {
			return idempotency.Reply{}, err
		}
	}
	ctx, cancel := db.Bound(ctx)
	defer cancel()
	var reply idempotency.Reply
	err := retry(ctx, func() (err error) {
		if reply, err = db.attempt(ctx, op, body); errors.Is(err, errKeyTaken) && op.Key != "" {
			reply, err = db.stored(ctx, op, err)
		}
		return err
	}, func(failed *retryError) (again bool) {
		db.cfg.Count(failed.event, op.Label)
		op.unknown = op.unknown || failed == errNoAnswer
		return op.Key != "" || op.Idempotent || failed != errNoAnswer
	})
	unconfirmed := errors.Is(err, errUnconfirmed)
	if op.unknown && err != nil && op.Key != "" && !unconfirmed {
		reply, err = db.stored(ctx, op, err)
	}
	switch {
	case unconfirmed: // says so already
	case !op.unknown:
		err = notDone(err)
	case err == nil, errors.Is(err, idempotency.ErrKeyReused):
		op.unknown = false
		db.cfg.Count(Resolved, op.Label)
	default: // "busy" or "cancelled" would claim that nothing happened
		err = &unknownError{err}
	}
	return reply, err
}

// stored returns the reply under the key, or err if there is none.
func (db *DB) stored(ctx context.Context, op *Op, err error) (idempotency.Reply, error) {
	if reply, found, lookErr := db.Lookup(ctx, op.Request); found {
		return reply, lookErr
	}
	return idempotency.Reply{}, err
}

// attempt runs one transaction.
func (db *DB) attempt(ctx context.Context, op *Op, body Body) (idempotency.Reply, error) {
	conn, err := db.connection(ctx)
	if err != nil {
		return idempotency.Reply{}, err
	}
	defer conn.Release()
	t := &Tx{db: db, op: op, conn: conn.Conn()}
	defer t.rollback(ctx)
	if err := t.Step(ctx, AfterAcquire); err != nil {
		return idempotency.Reply{}, err
	}
	if !op.Deferred {
		if err := t.Begin(ctx, op.Begin); err != nil {
			return idempotency.Reply{}, err
		}
	}
	reply, err := body(ctx, t)
	if err != nil && t.pgx && !errors.Is(err, errRefused) {
		err = db.classify(ctx, t.conn, err)
	}
	if errors.Is(err, errRefused) {
		t.undo()
		err = nil
	}
	if err == nil {
		err = t.finish(ctx, reply)
	}
	if err != nil {
		return idempotency.Reply{}, err
	}
	return reply, nil
}

// Read runs fn on a connection outside of a transaction. It retries if the connection is broken, so fn must be safe to
// run twice. A server ERROR for which Unavailable returns true is returned as locking.ErrBusy.
func (db *DB) Read(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := db.Bound(ctx)
	defer cancel()
	return notDone(retry(ctx, func() error {
		conn, err := db.connection(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return db.classify(ctx, conn.Conn(), fn(ctx, conn.Conn()))
	}, func(*retryError) bool { return true }))
}

// Lookup finds the reply that is stored under the request's key. A reply that is returned is final. found with an error
// means that the key has a reply that cannot be returned: ErrKeyReused, or locking.ErrOutcomeUnknown if no synchronous
// standby has confirmed it. A missing reply proves nothing: the first request may be committing at this moment. So use Lookup
// only to replay a reply.
//
// The statements of more, made with Alongside, are sent in the same round trip: they
// read what else is needed before the request waits for a lock.
func (db *DB) Lookup(ctx context.Context, req idempotency.Request, more ...*pgx.QueuedQuery) (reply idempotency.Reply, found bool, err error) {
	type row struct {
		Fingerprint []byte
		Status      int
		Body        []byte
		Header      map[string]string
		Synchronous bool // there are synchronous standbys
	}
	// No lock: a reply is complete from the moment it is visible, and never changes.
	stored, rows := Alongside[row](`
		SELECT fingerprint, status, body, header, current_setting('synchronous_standby_names') <> ''
		FROM idempotency_keys
		WHERE client_id = $1 AND key = $2`, req.Client, req.Key)
	var unconfirmed error
	err = db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{} // with new QueuedQueries: each keeps the statement that one connection has prepared
		for _, q := range append(more, stored) {
			batch.Queue(q.SQL, q.Arguments...).Fn = q.Fn
		}
		err := conn.SendBatch(ctx, batch).Close()
		if err == nil && len(*rows) > 0 && (*rows)[0].Synchronous {
			unconfirmed = confirm(ctx, conn)
		}
		return err
	})
	switch {
	case err != nil:
		return idempotency.Reply{}, false, fmt.Errorf("look up the key: %w", err)
	case len(*rows) == 0:
		return idempotency.Reply{}, false, nil
	case unconfirmed != nil:
		return idempotency.Reply{}, true, fmt.Errorf("pgtx: look up the key: %w", unconfirmed)
	}
	first := (*rows)[0]
	if string(first.Fingerprint) != string(req.Fingerprint[:]) {
		return idempotency.Reply{}, true, idempotency.ErrKeyReused // as final as a reply: the first request has the key
	}
	return idempotency.Reply{Status: first.Status, Body: first.Body, Header: first.Header, Replayed: true}, true, nil
}

// Bound returns ctx with the limit of one Run or Read, for a request of several.
func (db *DB) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, db.cfg.Limit, fmt.Errorf("%w: not done after %v", ErrUnreachable, db.cfg.Limit))
}

// connection returns a free connection. It waits no longer than for a lock.
func (db *DB) connection(ctx context.Context) (*pgxpool.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, LockTimeout)
	defer cancel()
	conn, err := db.cfg.Pool.Acquire(bounded)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case bounded.Err() != nil:
		return nil, fmt.Errorf("%w: waited %v", ErrUnreachable, LockTimeout)
	default:
		return nil, fmt.Errorf("%w: %w", errNoConn, err)
	}
}

// attemptsMax bounds the attempts of one Run. The pauses between them grow to pauseMax and add up to about two seconds.
const (
	attemptsMax = 20
	pauseBase   = 2 * time.Millisecond
	pauseMax    = 250 * time.Millisecond
)

// retry calls try until its error is not a retryError. For each that is, it asks failed whether to go on. The pauses are
// exponential with full jitter, so that two transactions that collided do not collide again.
func retry(ctx context.Context, try func() error, failed func(*retryError) bool) error {
	for n := 1; ; n++ {
		err := try()
		var again *retryError
		if !errors.As(err, &again) {
			return err
		}
		if !failed(again) || n == attemptsMax {
			return locking.Like(again.last, fmt.Errorf("%v (attempts: %d)", err, n))
		}
		select {
		case <-time.After(rand.N(min(pauseBase<<min(n-1, 16), pauseMax))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// retryError is the error of an attempt that the next attempt may not meet.
type retryError struct {
	text  string
	event Event
	last  error // what the caller gets when no attempt is left
}

func (e *retryError) Error() string { return "pgtx: " + e.text }

var (
	// ErrRetry is for bodies that detect that their data has changed since they read it.
	ErrRetry    error = &retryError{"lost a race, retry the whole transaction", Retried, locking.ErrBusy}
	errGuard          = &retryError{"a guard constraint refused the write", GuardTripped, locking.ErrBusy}
	errKeyTaken       = &retryError{"the key already has a reply", Retried, locking.ErrBusy}
	errNoConn         = &retryError{"no connection to PostgreSQL", Retried, ErrUnreachable}
	errLostConn       = &retryError{"connection lost before COMMIT was sent", Retried, ErrUnreachable}
	errNoAnswer       = &retryError{"COMMIT sent, no answer", Ambiguous, locking.ErrOutcomeUnknown}

	// ErrUnreachable reports that PostgreSQL has no free connection or does not answer:
	// the next request would fail as well. It matches locking.ErrBusy.
	ErrUnreachable = locking.Like(locking.ErrBusy, errors.New("pgtx: PostgreSQL gives no connection or no answer"))
)

// unknownError matches locking.ErrOutcomeUnknown and no other error, so that no
// caller takes it for "busy". errors.As finds the error of the last attempt in it.
type unknownError struct{ last error }

func (e *unknownError) Error() string {
	return fmt.Sprintf("%v: %v", locking.ErrOutcomeUnknown, e.last)
}
func (e *unknownError) Is(target error) bool { return target == locking.ErrOutcomeUnknown }
func (e *unknownError) As(target any) bool   { return errors.As(e.last, target) }

// notDone makes err match idempotency.ErrNotDone. It keeps its text.
func notDone(err error) error {
	if err == nil || errors.Is(err, idempotency.ErrInProgress) || errors.Is(err, locking.ErrOutcomeUnknown) {
		return err
	}
	return locking.Like(idempotency.ErrNotDone, err)
}
