// SPDX-License-Identifier: MIT

// Package rollup adds up the sales of each day, once, on one of several servers.
//
// # The question
//
// A job runs for minutes. Each server starts it at the same time of the day, so that it runs even if some of
// them are down. How does one server do the work while the others skip it at once? What happens when that
// server is killed half way?
//
// # The invariant
//
//	a day has at most one row for each product in daily_sales, and it never changes once the day is done
//	a day whose roll-up is done has the sums of all its stock movements, whatever was killed or repeated
//
// # How
//
// The lock makes it fast: locking.Once takes the lock "roll-up/2026-11-22" for the work, renews it while the work
// lasts, and returns locking.ErrBusy at once on the other servers. When the holder is killed, the lock expires
// after its TTL, and the next run of any server continues.
//
// The database makes it right: the work is cut into pieces of 5,000 movements, each one transaction.
//
//	tx:  roll_ups of the day FOR UPDATE      waits for a piece of another server, then reads where it ended
//	     done, or up to which movement       decides
//	     INSERT INTO daily_sales … SELECT    adds the next movements to the sums of their products
//	     UPDATE roll_ups                     up to the last of them; done after the last movement
//	     COMMIT
//
// So a movement is added once, also if the lock was lost and two servers work. A late holder finds the row further on,
// and continues there. It needs no fence: what it writes does not depend on what it has read under the lock.
//
// A piece is a number of rows, and neither of products nor of hours: most sales of a day may be of one product and in
// one minute. The index (created_at, id) makes it as long as its rows, however long the tables are.
//
// # What is added up
//
// Stock movements of the day, in UTC, of the kinds sale and cancel. They are only appended, so the sums of a day
// are final when all its transactions have ended. A transaction has the time of its beginning. A day is due
// when it has been over for Settle, which is longer than any transaction of the shop lasts, and when none that has written is
// left from before its end: a COMMIT that waits for a synchronous standby may wait for hours. Those of another role of the
// server are seen only by a member of pg_read_all_stats. A cancellation counts on the day of the cancellation, so units
// and revenue may be negative.
//
// # What goes wrong, and what happens then
//
//	the server is killed in a piece           rolled back; the lock expires after its TTL; then the next run repeats it
//	the server is killed after a piece        the next run continues with the next piece
//	it is paused beyond the TTL               another server continues; the paused one stops, or finds the piece done
//	COMMIT has no answer                      an error; the next run reads whether the piece is done
//	PostgreSQL is silent                      an error after pgtx.Limit; the next run continues
//	PostgreSQL refuses a day                  an error; the later days are added up all the same
//	a transaction of a day does not end       the day waits for it, and each day that it lasts
//	the lock table is lost                    two servers take turns in the pieces; each piece is added once
//	no server ran for some days               the next run does all days that are due, the oldest first
//	a server's clock is wrong                 nothing: the database decides which days are due
//
// # Sources
//
//   - ShedLock (github.com/lukas-krecan/ShedLock): one instance runs a scheduled task, the others skip it.
//   - PostgreSQL manual, 13.2.1 Read Committed: SELECT FOR UPDATE waits and reads the row's new version.
package rollup
