// Package lostupdate shows why package redlock is not recommended, on five Redis servers and
// PostgreSQL. It has tests only, and each of them is a script: it does not depend on luck.
//
// Two holders of one lock each add to a balance of 100, by a read and a write:
//
//	A: acquire, read 100          pause          write 110
//	B:                    acquire, read 100, write 101
//
// B is granted the lock although A has not given it up, in two ways:
//
//   - A is stopped (SIGSTOP) after it has checked its lease, and for longer than the TTL.
//   - A has three of the five servers, and one of them restarts without its data. Both
//     leases are within their Until.
//
// In both cases B's update is lost: the balance is 110. With a fence that each holder takes
// from PostgreSQL after it was granted the lock (nextval), and stores in the row before it
// reads, A's write is refused: the balance is 101, and A knows that it failed.
package lostupdate
