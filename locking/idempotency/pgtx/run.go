package pgtx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/idempotency"
)

// attemptsMax bounds how often one Run runs its transaction; the pauses between
// the attempts grow to pauseMax and add up to about two seconds.
const (
	attemptsMax = 20
	pauseBase   = 2 * time.Millisecond
	pauseMax    = 250 * time.Millisecond
)

// Body reads, decides, queues what is to be written, and returns the reply that
// is committed with it. It runs once for each attempt: what an attempt found out
// must not survive it. Any error rolls back; those that Tx returned are passed on
// as they are, so that Run can tell which of them to retry.
type Body func(ctx context.Context, tx *Tx) (idempotency.Reply, error)

// Op is one request while Run works at it: what survives from attempt to attempt,
// and from one Run to the next.
type Op struct {
	idempotency.Request        // without a Key: no client asked (a batch job), and no reply is stored
	Label               string // for Config.Count and Config.Failpoint
	Begin               string // "": BeginReadCommitted

	// Deferred leaves BEGIN to the body (Tx.Begin). What the body flushes before
	// that is committed by itself.
	Deferred bool

	unknown bool // an earlier COMMIT may have happened: no error may claim otherwise
}

// Unknown reports whether a COMMIT of this request was sent, not answered, and
// not decided yet.
func (op *Op) Unknown() bool { return op.unknown }

// The statements that begin a transaction. READ COMMITTED is named, since a server
// may have another default: each of its statements sees what was committed before
// that statement, so that what is read after a lock is fresh.
const (
	BeginReadCommitted = "begin isolation level read committed"
	BeginSerializable  = "begin isolation level serializable"
)

// Errors of an attempt. Run retries them, and turns them into ErrBusy at the end.
var (
	// ErrRetry is for bodies that find out that what they read has changed.
	ErrRetry    = errors.New("pgtx: lost a race, run the whole transaction again")
	errGuard    = errors.New("pgtx: a guard constraint refused the write")
	errKeyTaken = errors.New("pgtx: the key has a reply already")
	errLostConn = errors.New("pgtx: connection lost before COMMIT was sent")
)

// ambiguousError is a COMMIT that was sent and not answered.
type ambiguousError struct{ err error }

func (e *ambiguousError) Error() string { return "pgtx: COMMIT sent, no answer: " + e.err.Error() }
func (e *ambiguousError) Unwrap() error { return e.err }

// errRefused marks the reply of Refuse.
var errRefused = errors.New("pgtx: refused")

// Refuse is how a body returns a refusal that is stored and replayed ("out of
// stock"): everything that the body did is rolled back, and reply is committed with the key.
func Refuse(reply idempotency.Reply) (idempotency.Reply, error) { return reply, errRefused }

// Do is Lookup, and Run if the key has no reply yet.
func (db *DB) Do(ctx context.Context, req idempotency.Request, body Body) (idempotency.Reply, error) {
	if err := req.Check(); err != nil {
		return idempotency.Reply{}, err
	}
	if reply, found, err := db.Lookup(ctx, req); found || err != nil {
		return reply, err
	}
	return db.Run(ctx, &Op{Request: req}, body)
}

// Lookup finds the reply that is stored under the request's key. Found is a fact.
// Not found proves nothing: the first request may be committing at this moment.
// So a Lookup may replay, and decides nothing else.
//
// The statements of more are sent in the same round trip: what else is to be
// known before a request waits for a lock. See Alongside.
func (db *DB) Lookup(ctx context.Context, req idempotency.Request, more ...*pgx.QueuedQuery) (reply idempotency.Reply, found bool, err error) {
	type row struct {
		Fingerprint []byte
		Status      int
		Body        []byte
	}
	// No lock: a reply is complete from the moment it is visible, and never changes.
	stored, rows := Alongside[row](`
		SELECT fingerprint, status, body
		FROM idempotency_keys
		WHERE client_id = $1 AND key = $2`, req.Client, req.Key)
	err = db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		for _, q := range append(more, stored) {
			batch.Queue(q.SQL, q.Arguments...).Fn = q.Fn
		}
		return conn.SendBatch(ctx, batch).Close()
	})
	switch {
	case err != nil:
		return idempotency.Reply{}, false, fmt.Errorf("pgtx: look up the key: %w", err)
	case len(*rows) == 0:
		return idempotency.Reply{}, false, nil
	}
	first := (*rows)[0]
	if string(first.Fingerprint) != string(req.Fingerprint[:]) {
		return idempotency.Reply{}, false, idempotency.ErrKeyReused
	}
	return idempotency.Reply{Status: first.Status, Body: first.Body, Replayed: true}, true, nil
}

// Run runs body in a transaction until its outcome is known, within bounds.
//
// A nil error means that the reply is committed under the request's key, by this
// Run or by an earlier request. The package comment has a table of the errors.
func (db *DB) Run(ctx context.Context, op *Op, body Body) (idempotency.Reply, error) {
	ctx, cancel := db.Bound(ctx)
	defer cancel()
	var err error
	for try := range attemptsMax {
		if pauseErr := pause(ctx, try); pauseErr != nil {
			return db.giveUp(ctx, op, pauseErr)
		}
		var reply idempotency.Reply
		if reply, err = db.attempt(ctx, op, body); err == nil {
			return db.settled(op, reply), nil
		}
		if errors.Is(err, errKeyTaken) {
			reply, found, lookErr := db.Lookup(ctx, op.Request)
			if found || errors.Is(lookErr, idempotency.ErrKeyReused) {
				return db.settled(op, reply), lookErr
			}
		}
		if !db.retryable(op, err) {
			break
		}
	}
	return db.giveUp(ctx, op, err)
}

// attempt is one transaction.
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
	if errors.Is(err, errRefused) {
		t.undo()
		err = nil
	}
	if err == nil {
		err = t.finish(ctx, reply)
	}
	return reply, err
}

// retryable reports whether another attempt may end differently, and counts why.
func (db *DB) retryable(op *Op, err error) bool {
	var ambiguous *ambiguousError
	switch {
	case errors.As(err, &ambiguous):
		op.unknown = true
		db.count(Ambiguous, op.Label)
	case errors.Is(err, errGuard):
		db.count(GuardTripped, op.Label)
	case errors.Is(err, ErrRetry), errors.Is(err, errKeyTaken), errors.Is(err, errLostConn):
		db.count(Retried, op.Label)
	default:
		return false
	}
	return true
}

// settled ends a request whose outcome is known.
func (db *DB) settled(op *Op, reply idempotency.Reply) idempotency.Reply {
	if op.unknown {
		op.unknown = false
		db.count(Resolved, op.Label)
	}
	return reply
}

// giveUp ends a Run without a reply. After a COMMIT without an answer, "busy" or
// "cancelled" would claim that nothing happened.
func (db *DB) giveUp(ctx context.Context, op *Op, err error) (idempotency.Reply, error) {
	if !op.unknown {
		return idempotency.Reply{}, exhausted(err)
	}
	if op.Key != "" {
		reply, found, lookErr := db.Lookup(ctx, op.Request)
		if found || errors.Is(lookErr, idempotency.ErrKeyReused) {
			return db.settled(op, reply), lookErr
		}
	}
	return idempotency.Reply{}, &unknownError{err}
}

// unknownError matches locking.ErrOutcomeUnknown and no other error, so that no
// caller takes it for "busy". As finds the error of the last attempt in it.
type unknownError struct{ last error }

func (e *unknownError) Error() string {
	return fmt.Sprintf("%v: %v", locking.ErrOutcomeUnknown, e.last)
}
func (e *unknownError) Is(target error) bool { return target == locking.ErrOutcomeUnknown }
func (e *unknownError) As(target any) bool   { return errors.As(e.last, target) }

// exhausted turns the error of the last attempt into what it means to a caller:
// nothing was done, come again.
func exhausted(err error) error {
	var busy error
	switch {
	case errors.Is(err, errLostConn):
		busy = ErrUnreachable
	case errors.Is(err, ErrRetry), errors.Is(err, errGuard), errors.Is(err, errKeyTaken):
		busy = locking.ErrBusy
	default:
		return err
	}
	return fmt.Errorf("%w: gave up after %d attempts: %v", busy, attemptsMax, err)
}

// pause before attempt number try: exponential with full jitter, so that two
// transactions that collided do not collide again.
func pause(ctx context.Context, try int) error {
	if try == 0 {
		return nil
	}
	timer := time.NewTimer(rand.N(min(pauseBase<<min(try-1, 16), pauseMax)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
