// SPDX-License-Identifier: MIT

// Package filelock keeps locks in the files of a folder: flock(2), for one key or
// several at once, with the fence in the file.
//
// # The question
//
// Several processes of one machine must do something one at a time, and there is no lock
// server. The kernel knows which processes are alive. How does a lock use that, and what
// does it not protect against?
//
// # The invariant
//
// At any moment at most one lease of a key is held, by a process that is alive, as long
// as the key's file keeps its name. Of two grants of one key the later has the greater
// Fence, as long as the file is there, or the clock was not set back.
//
// A lease does not expire: Until is zero. The kernel frees its keys when the process
// ends, however it ends. A process that is stopped or hangs keeps them.
//
// # What is stored
//
// Each key has one file. Its name is the SHA-256 of the key, so a key may hold any bytes.
// The key report/2026-11 has the file
//
//	d1b5e9a3454333b3060d48ca6e25e1becd7baab8a0b3ff6120a83bf2f529b851.lock
//
//	0001795256814078067 0001795256814078067
//	"report/2026-11"
//
// The first line is the last fence that was granted, twice: a write that was cut short
// leaves two different numbers. The second line is for operators.
//
//	          flock(LOCK_EX|LOCK_NB); the path still names this file;
//	┌──────┐  fence + 1 is written and synced                        ┌──────┐
//	│ free │ ──────────────────────────────────────────────────────▶ │ held │
//	└──────┘ ◀────────────────────────────────────────────────────── └──────┘
//	          flock(LOCK_UN); or the process ends
//
// A lease of several keys locks their files in order, and has the greatest of their
// fences, plus 1. The number is written to all of the files.
//
// The file is never deleted. A release that deleted it would let two holders in: B has
// opened the file, A deletes it and unlocks, B locks the deleted file, C creates a new one
// and locks that.
//
// A new file is written under another name, synced, and linked to its own name. So there
// is no moment in which it is empty, and an empty file is a damaged one. Its fence starts
// at the wall clock in microseconds. So it is above all fences of a file that was
// deleted, since a key is granted less than a million times a second. A process that is
// killed meanwhile leaves the other name, new-*, which may be deleted.
//
// # What goes wrong, and what happens then
//
//	what happens                        what the holder sees                what other processes see
//	the holder crashes, or is killed    -                                   free at once, then a greater fence
//	the holder is stopped, or hangs     nothing; locking.Do ends the work   busy, for as long as that lasts
//	                                    after a pause of 3 s: ErrLost
//	the machine crashes                 -                                   free, then a greater fence
//	the holder starts a program         nothing: the descriptors are        busy until the release, or the end
//	                                    closed in it                        of the holder alone
//	a descriptor was copied (dup, or    nothing: Release frees the key      busy after the holder's crash, until
//	fork without exec, in C)            for all copies                      the last copy is closed
//	a descriptor was closed by          Renew: ErrLost, up to a second      free at once: two holders until
//	another part of the program         later, with locking.Do              then
//	the file is deleted, renamed or     the same; the guard refuses the     free at once, with a greater fence:
//	replaced by an operator             smaller fence                       two holders until then
//	… while a request opens it          the request opens the new file      busy, or free
//	… and the clock was set back        the same                            the fence goes back: with a guard,
//	                                                                        ErrStale, until an operator runs
//	                                                                        the command of ErrDamaged
//	the folder is restored from a       Renew: ErrLost                      the same as a clock that was set back
//	backup
//	the Store is garbage-collected      nothing: its leases are kept        busy
//	the folder or the file system       an error that says so, which is     the same
//	cannot be written                   not ErrBusy
//	the file system has no flock        the same                            the same
//	the fence cannot be written, or     an error, and nothing is held       free, then a greater fence
//	synced: disk full, I/O error
//	the file is empty, torn, or not     ErrDamaged, with the command that   the same
//	what this package has written       sets the fence above all others
//	the disk does not answer            ErrOutcomeUnknown 0.1 s after the   busy until the disk answers
//	                                    end of ctx; released later
//	too many open files (a lease has    an error that is not ErrBusy        the same
//	one for each key)
//	NFS, SMB                            not detected. The kernel emulates   two holders, after the server has
//	                                    flock with locks at the server      dropped a lock
//	another user's process              an error: files have the mode 0600  the same
//	a process that does not use flock   nothing                             the file does not stop it
//
// So the package promises exclusion on one machine, among processes of one user that use
// one folder of a local file system, also from several containers; and a fence. It
// promises no fairness: after a release the first attempt is granted.
//
// Keep the folder out of /tmp and /var/tmp: cleaners of temporary files delete lock files
// that are not held. Processes of several machines need a store with a server.
//
// # Waiting
//
// The Store is no locking.Waiter: locking.Acquire polls. flock without LOCK_NB would wait
// in the kernel, but the end of a ctx cannot interrupt it, and neither can closing the
// descriptor. An attempt that finds the key busy costs a few system calls and no write, so
// Options.Backoff.Max may be a few milliseconds. A grant waits once for the disk.
//
// # Sources
//
//   - flock(2): a lock belongs to the open file description; copies of a descriptor share
//     it, and LOCK_UN on any of them frees it; NFS and SMB emulate it.
//   - fsync(2): the entry in the folder needs an fsync of its own.
//   - tmpfiles.d(5): the ageing of temporary files skips a file only while it is locked.
//   - golang/go issue 16700: the garbage collector closes an unreachable os.File, and that
//     frees the lock. Issue 41505: this was not documented.
//   - gofrs/flock: polling, one open file for each lock, the file stays after Unlock
//     (pull request 8). An unreachable Flock is unlocked there, and it has no fence.
//   - symfony issue 28979, tox-dev/filelock pull request 623: users ask for the deletion of
//     lock files, and why it must not happen. werf/lockgate pull request 48: a check after
//     the lock that the file was not deleted in between.
package filelock
