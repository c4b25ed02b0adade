// SPDX-License-Identifier: MIT

// Package wrong has the locks that articles publish and that fail, each as short as it is
// published. It exists to fail: each has a test that shows the failure on a real server, at
// the first attempt. Only tests import it, and the lab (cmd/shop/lab) imports leaseid; a
// test checks that.
//
//	mistake                              what happens                              correct
//	SetNX: no expiry (C1)                the holder dies, the key is taken for     redislock
//	                                     ever
//	SetNXThenExpire: two commands (C2)   it dies between them: the same            redislock
//	SetNXOrHeal: sets the missing TTL    the lock of a slow holder expires         redislock
//	of another's lock
//	Del: release by DEL (C5)             a late release deletes the next           redislock
//	                                     holder's lock
//	GetThenDel: GET, compare, DEL (C6)   the same, if the lock changes hands       redislock
//	                                     between the commands
//	TakeOver: GET the deadline, DEL,     two waiters find one deadline past, and   redislock
//	SETNX                                the slower one deletes the other's lock
//	WallClock: deadline by the wall      the clock is set back, and the holder     locking.Lease.Until
//	clock                                trusts a lock that has expired
//	Incr: a counter as the fence (C9)    it is lost with its server's data: later  redislock's fence
//	                                     holders are refused
//	IncrThenSet: the fence, then the     a holder gets the lock with an older      redislock's script
//	lock                                 fence than one that was accepted
//	Process: one owner for a process     a goroutine releases another one's lock   an owner for each grant
//	WithLease: nothing renews it (C8)    the work outlasts its lock                locking.Do
//	JobOnce: deletes its flag at the end a call after the end runs the job again   locking.Once, and a record with a
//	                                                                               unique key
//	SessionLockWithin: lock_timeout of   later statements have the limit; a        pglock.XactLockWithin
//	the session (A4)                     deadlock looks like the end of it
//	Book: FOR UPDATE of a row that is    two find no row, and both insert one      pglock.XactLock, or a unique key
//	not there
//	TakeUnit: "sold out" while all       buyers are turned away from stock that    inventory, slots
//	units are locked (E6)                is not sold
//	LockUser: one row for everything     unrelated work waits, also for foreign    a key for each thing; FOR NO KEY
//	                                     keys                                      UPDATE
//	Put: no comparison in etcd (D1)      each one succeeds                         etcdlock
//	CreditOnce: StartTransaction, never  MongoDB aborts the second writer          mongolock.ForUpdate in
//	again (B2)                                                                     WithTransaction
//	zkwatch: sorts by name, watches      two holders; a wait for ever              zklock
//	without a look (D3)
//	LockFile: deletes its file           a process that has opened the file locks  filelock
//	                                     a file without a name, the next a new one
//	AddGuardedLate: guard at the write   a holder has read before an older one     pglock.Guard, first
//	alone                                wrote: that update is lost
//	leaseid: the lease ID as the fence   rightful holders are refused, stale ones  etcdlock
//	                                     pass
//	redlock: a majority of servers       a pause, or a server that restarts: two   redislock, etcdlock
//	                                     holders, and an update is lost
package wrong
