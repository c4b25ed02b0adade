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
//	LockFile: deletes its file           a process that has opened the file locks  filelock
//	                                     a file without a name, the next a new one
//	AddGuardedLate: guard at the write   a holder has read before an older one     pglock.Guard, first
//	alone                                wrote: that update is lost
//	leaseid: the lease ID as the fence   rightful holders are refused, stale ones  etcdlock
//	                                     pass
//	redlock: a majority of servers       a pause, or a server that restarts: two   redislock, etcdlock
//	                                     holders, and an update is lost
package wrong
