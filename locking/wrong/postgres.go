// SPDX-License-Identifier: MIT

package wrong

import "context"

// SessionLockWithin makes the published function of a session lock with a time limit. set_config without is_local changes the
// session: after the lock is granted, each later statement of this connection has the limit. And an exception handler that
// takes a deadlock for the end of the limit hides it: the caller tries again, and meets it again.
const SessionLockWithin = `
	CREATE FUNCTION session_lock_within(key bigint, ms integer) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM set_config('lock_timeout', ms || 'ms', false);
		PERFORM pg_advisory_lock(key);
		RETURN true;
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		RETURN false;
	END $$`

// Book books a seat, unless it is booked: FOR UPDATE on a row that is not there yet locks nothing. work is what happens
// between the read and the write.
func Book(ctx context.Context, db DB, seat, guest string, work func()) (booked bool, err error) {
	tag, err := db.Exec(ctx, `SELECT FROM bookings WHERE seat = $1 FOR UPDATE`, seat)
	if err != nil || tag.RowsAffected() > 0 {
		return false, err
	}
	work()
	_, err = db.Exec(ctx, `INSERT INTO bookings (seat, guest) VALUES ($1, $2)`, seat, guest)
	return err == nil, err
}

// LockUser locks the row of a user for whatever happens to the user. Whatever refers to it waits too: the INSERT of an order
// locks the row of its user, FOR KEY SHARE, for the foreign key.
const LockUser = `SELECT FROM users WHERE id = $1 FOR UPDATE`

// TakeUnit takes a unit that no other transaction has locked, and takes "all are locked" for "sold out": buyers are turned
// away while there is stock, because the transaction that has locked the last unit may roll back.
func TakeUnit(ctx context.Context, db DB, order string) (soldOut bool, err error) {
	tag, err := db.Exec(ctx, `
		UPDATE stock_units SET order_id = $1
		WHERE id = (SELECT id FROM stock_units WHERE order_id IS NULL LIMIT 1 FOR UPDATE SKIP LOCKED)`, order)
	return tag.RowsAffected() == 0, err
}
