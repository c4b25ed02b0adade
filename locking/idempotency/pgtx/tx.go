// SPDX-License-Identifier: MIT

package pgtx

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/idempotency"
)

// The statements that begin a transaction. READ COMMITTED is explicit, since a server may have another default. In it
// each statement sees what was committed before that statement, so that a read after a lock is up to date.
const (
	BeginReadCommitted = "begin isolation level read committed"
	BeginSerializable  = "begin isolation level serializable"
)

// Step is a point of a transaction at which a test may stop, slow or kill the process.
type Step string

// The steps, in order. AfterGuard is for bodies to call, with Tx.Step.
const (
	AfterAcquire Step = "after-acquire" // a connection is acquired, nothing is sent
	AfterBegin   Step = "after-begin"
	AfterGuard   Step = "after-guard" // the data for the decision is read, and locked or guarded
	AfterKey     Step = "after-key"
	BeforeCommit Step = "before-commit"
	AfterCommit  Step = "after-commit"
)

// Tx is a transaction in as few round trips as its decisions need. It belongs to
// one attempt of one Run, and to one goroutine.
type Tx struct {
	db   *DB
	op   *Op
	conn *pgx.Conn

	queue     []*pgx.QueuedQuery
	keyAt     int  // how many of the queued statements precede the key; see KeyHere
	beginning bool // BEGIN is queued
	pgx       bool // the body has statements of its own: see Pgx
}

// Begin begins the transaction, if Op.Deferred leaves that to the body. sql is one of the constants Begin…, or another
// BEGIN; "" is BeginReadCommitted. A body that has sent "commit" itself may begin again.
//
// The step AfterBegin comes after the last check of ctx: from there on, only the database can refuse a late write.
func (t *Tx) Begin(ctx context.Context, sql string) error {
	if err := t.Flush(ctx); err != nil {
		return err
	}
	if t.began() {
		return errors.New("pgtx: the transaction has begun")
	}
	t.begin(cmp.Or(sql, BeginReadCommitted))
	return t.failpoint(ctx, AfterBegin)
}

func (t *Tx) begin(sql string) {
	t.Queue(sql)
	t.KeyHere()
	t.beginning = true
}

// began reports whether the next statement belongs to a transaction.
func (t *Tx) began() bool { return t.beginning || t.conn.PgConn().TxStatus() != 'I' }

// KeyHere puts the key behind the statements queued so far: for a body that locks its
// rows in the round trip of COMMIT, and must lock them before the key.
func (t *Tx) KeyHere() { t.keyAt = len(t.queue) }

// Queue queues a statement. The next Flush or Select sets the tag.
func (t *Tx) Queue(sql string, args ...any) *pgconn.CommandTag {
	var tag pgconn.CommandTag
	q := &pgx.QueuedQuery{SQL: sql, Arguments: args}
	q.Exec(func(ct pgconn.CommandTag) error {
		tag = ct
		return nil
	})
	t.queue = append(t.queue, q)
	return &tag
}

// QueueRows queues a statement that returns rows. The next Flush or Select sets them. Columns fill the exported fields of T
// by position, or T itself if it is not a struct.
func QueueRows[T any](t *Tx, sql string, args ...any) *[]T {
	q, list := Alongside[T](sql, args...)
	t.queue = append(t.queue, q)
	return list
}

// Alongside returns a statement for DB.Lookup, and the list that it fills as QueueRows does.
func Alongside[T any](sql string, args ...any) (*pgx.QueuedQuery, *[]T) {
	var list []T
	q := &pgx.QueuedQuery{SQL: sql, Arguments: args}
	q.Query(func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, rowTo[T]())
		return err
	})
	return q, &list
}

// Select is QueueRows and Flush: it sends all queued statements, and returns the rows.
func Select[T any](ctx context.Context, t *Tx, sql string, args ...any) ([]T, error) {
	rows := QueueRows[T](t, sql, args...)
	err := t.Flush(ctx)
	return *rows, err
}

// rowTo scans structs by position, and all other types as one value.
func rowTo[T any]() pgx.RowToFunc[T] {
	typ := reflect.TypeFor[T]()
	_, scans := any(new(T)).(sql.Scanner)
	if typ.Kind() == reflect.Struct && typ != reflect.TypeFor[time.Time]() && !scans {
		return pgx.RowToStructByPos[T]
	}
	return pgx.RowTo[T]
}

// Step lets a test act at this point. It returns the cause of ctx, if that has ended.
func (t *Tx) Step(ctx context.Context, step Step) error {
	if err := t.failpoint(ctx, step); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// failpoint calls Config.Failpoint. It sends the queued statements first, so that the
// transaction is at the point that the step's name says.
func (t *Tx) failpoint(ctx context.Context, step Step) error {
	if t.db.cfg.Failpoint == nil {
		return nil
	}
	err := t.Flush(ctx)
	if err == nil {
		t.db.cfg.Failpoint(ctx, step, t.op.Label)
	}
	return err
}

// Flush sends the queued statements and reads all answers: one round trip, or none.
func (t *Tx) Flush(ctx context.Context) error {
	if len(t.queue) == 0 {
		return nil
	}
	batch := &pgx.Batch{QueuedQueries: t.queue}
	t.queue, t.keyAt, t.beginning = nil, 0, false
	return t.db.classify(ctx, t.conn, t.conn.SendBatch(ctx, batch).Close())
}

// undo rolls back what the body did, in the next round trip, and begins a new
// transaction, so that the row locks are free before the key's fsync.
func (t *Tx) undo() {
	t.queue = nil
	if t.conn.PgConn().TxStatus() != 'I' {
		t.Queue("rollback")
	}
	t.begin(BeginReadCommitted)
}

// finish sends the key, the statements that the body left queued, and COMMIT.
func (t *Tx) finish(ctx context.Context, reply idempotency.Reply) error {
	if !t.began() {
		return errors.New("pgtx: the body of a deferred Op did not begin a transaction")
	}
	if t.op.Key != "" {
		if err := reply.Check(); err != nil {
			return err
		}
		writes := t.queue[t.keyAt:]
		t.queue = t.queue[:t.keyAt:t.keyAt]
		if t.op.KeyWait > 0 {
			t.Queue("SET LOCAL lock_timeout = " + milliseconds(t.op.KeyWait))
		}
		t.insertKey(InsertKey, t.op.Client, t.op.Key, t.op.Fingerprint[:], reply.Status, append([]byte{}, reply.Body...), reply.Header) // the body is never NULL
		if err := t.Step(ctx, AfterKey); err != nil {
			return err
		}
		t.queue = append(t.queue, writes...)
	}
	return t.commit(ctx)
}

// InsertKey is the statement that stores a key with its reply. Its first two parameters
// are the client and the key: fault tests recognize it in the traffic to a server.
const InsertKey = `
	INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, header)
	VALUES ($1, $2, $3, $4, $5, $6)`

// insertKey queues the INSERT of a key with its reply. A plain INSERT: it waits for a transaction that inserts the same
// key, and if that one commits, 23505 (unique_violation) ends the batch.
func (t *Tx) insertKey(sql string, args ...any) {
	insert := &pgx.QueuedQuery{SQL: sql, Arguments: args}
	insert.Fn = func(br pgx.BatchResults) error {
		_, err := br.Exec()
		if pg := refusal(err); pg != nil && pg.Code == "55P03" { // lock_not_available: it waited for the key, not for a row
			return fmt.Errorf("%w: %w", idempotency.ErrInProgress, err)
		}
		return err
	}
	t.queue = append(t.queue, insert)
}

// commit sends the queued statements and COMMIT. Once sent, COMMIT cannot be cancelled:
// a cancelled ctx would close the connection, not undo what the server has received.
func (t *Tx) commit(ctx context.Context) error {
	if err := t.Step(ctx, BeforeCommit); err != nil {
		return err
	}
	// The last point at which the client may leave, or the lease be lost, without an effect.
	detached, cancel, err := locking.Detach(ctx, CommitTimeout)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer cancel()
	tag, warned := t.queueCommit()
	answered, closed := t.watchFirst(), t.conn.IsClosed()
	err = t.Flush(detached)
	switch {
	case *warned != nil && refusal(err) == nil: // committed, perhaps without the standby
		return fmt.Errorf("%w: %w", errNoAnswer, *warned)
	case tag.String() == "COMMIT": // committed: any error came after that
		return t.failpoint(ctx, AfterCommit)
	case tag.String() == "ROLLBACK": // COMMIT of a failed transaction is neither an error nor a commit
		return ErrRetry
	case refusal(err) != nil, closed, isUnsent(err), !*answered && !t.conn.IsClosed(): // pgx refused to send it: such as a value that it cannot encode
		return err
	default:
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
}

// watchFirst returns whether the first queued statement was answered, once Flush has returned. If it was not, and the
// connection is open, then nothing was sent: pgx reads all answers, or closes the connection.
func (t *Tx) watchFirst() *bool {
	answered, first := new(bool), t.queue[0]
	read := first.Fn
	first.Fn = func(br pgx.BatchResults) error {
		*answered = true
		return read(br)
	}
	return answered
}

// rollback ends a transaction that is still open. If that takes too long, the
// connection is closed, and the server rolls back.
func (t *Tx) rollback(ctx context.Context) {
	if t.conn.IsClosed() || t.conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = t.conn.Exec(ctx, "rollback") // Release closes a connection that is still in a transaction
}

// isUnsent reports whether pgx did not send the statements of a round trip on a connection that was open. Its SafeToRetry says so too of
// an answer that is lost with its connection: it peeks, closes the connection, and reads again (MultiResultReader.NextResult in
// 5.12.0, of a batch in the exec modes).
func isUnsent(err error) bool {
	return isUnprepared(err) || pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed)
}

// isUnprepared reports whether pgx prepared a round trip, and did not send its statements.
func isUnprepared(err error) bool {
	var unsent pgx.ErrPreprocessingBatch
	return errors.As(err, &unsent)
}

// isUnencodable reports whether pgx had no connection or server to blame when it did not send a round trip.
func isUnencodable(err error) bool {
	var server *pgconn.PgError
	return isUnprepared(err) && !errors.As(err, &server) && !Unavailable(err)
}

// refusal returns the server's ERROR in err; nil: there is none. A FATAL is not a refusal: it may follow a COMMIT.
func refusal(err error) *pgconn.PgError {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" {
		return pg
	}
	return nil
}

// classify returns the meaning of an error of a round trip. It uses the SQLSTATE and
// never the text, which may be translated.
func (db *DB) classify(ctx context.Context, conn *pgx.Conn, err error) error {
	pg := refusal(err)
	switch {
	case err == nil, errors.Is(err, idempotency.ErrInProgress):
		return err
	case ctx.Err() != nil && (pg == nil || pg.Code == "57014"): // query_canceled
		return context.Cause(ctx)
	case pg == nil && isUnencodable(err): // a bug of the caller, although pgx closes the connection
		return err
	case pg == nil && conn.IsClosed():
		return fmt.Errorf("%w: %w", errLostConn, err)
	case pg == nil:
		return err
	case pg.Code == "40001", pg.Code == "40P01", isStale(pg): // serialization_failure, deadlock_detected
		return fmt.Errorf("%w: %w", ErrRetry, err)
	case pg.Code == "23514" && slices.Contains(db.cfg.Guards, pg.ConstraintName): // check_violation
		return fmt.Errorf("%w: %w", errGuard, err)
	case pg.Code == "23505" && pg.ConstraintName == "idempotency_keys_pkey": // unique_violation
		return fmt.Errorf("%w: %w", errKeyTaken, err)
	case Unavailable(pg), readOnly(conn): // the server ran out of time or memory, or refuses writes, and rolls back
		return locking.Like(locking.ErrBusy, fmt.Errorf("pgtx: PostgreSQL has not executed the request: %w", err))
	}
	return err
}

// isStale reports whether a prepared statement returns other columns since a table was altered: pgx prepares it anew
// the next time. The name of the server's function is the only mark that is not translated.
func isStale(pg *pgconn.PgError) bool {
	return pg.Code == "0A000" && pg.Routine == "RevalidateCachedQuery"
}

// Unavailable reports whether err is caused by the state of PostgreSQL or of the network,
// and not by the statement: another request may not meet it. A session that was refused is such a state, whatever the reason.
func Unavailable(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return strings.HasPrefix(pg.Code, "08") || // connection exception
			strings.HasPrefix(pg.Code, "53") || // insufficient resources, such as connections
			strings.HasPrefix(pg.Code, "57") || // operator intervention: shutdown, starting up, statement_timeout
			pg.Code == "55P03" || // lock_not_available: lock_timeout
			pg.Code == "25006" || // read_only_sql_transaction
			pg.Code == "42501" || // insufficient_privilege: revoked from the role
			isStale(pg)
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}
