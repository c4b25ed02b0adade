// SPDX-License-Identifier: MIT

// Package stack runs real servers for tests, proofs and demos, without Docker,
// and leaves nothing behind, however it ends.
//
// # The question
//
// A test against real servers starts them, breaks them and stops them. They must
// also stop when the test panics, on Ctrl-C, when CI sends SIGKILL to the whole
// process tree, and while a server is paused. Clean-up code in a killed process
// cannot do that.
//
// # The invariant
//
// Nothing of a stack outlives the process that opened it: no server, no process
// of the command, no adopted replica, no file outside the cache folder, no
// shared memory. No other process is ever signalled: a process is identified by
// pid and start time, compared while a pidfd is held.
//
// # How it works
//
//	make ── go run ── exec ──────────────── command (in its own process group)
//	                   ┊ parent pipe
//	   (in its own session, child of init)
//	              supervisor ─┬─ postgres ── backends …
//	                   ┊      ├─ redis
//	                   ┊ pipe ├─ etcd
//	                   ┊      └─ mongod
//	                reaper
//
// The supervisor is the parent of all servers. It executes requests from a unix
// socket in the stack's folder (open, start, stop, kill, pause, resume, keep, adopt). It
// has no clean-up code: it exits when the other end of the parent pipe closes,
// which happens however exec ends. The reaper waits until the supervisor exits,
// reads the journal, kills every process in it, and removes the folder. A normal
// end and a SIGKILL take the same path, so every test also tests the end by
// SIGKILL. (The pattern: crash-only software, Candea and Fox, HotOS 2003.)
//
//	server:   Down ──Start──▶ Running ──Pause──▶ Paused ──Resume──▶ Running
//	           ▲                 │                  │
//	           └──Stop, Kill─────┴──────────────────┘
//
// Start returns when the server has answered a query that only this server can
// answer: a foreign Redis that took the port would also reply PONG.
//
// # What happens when a process is killed
//
//	killed                     noticed by                          consequence
//	exec                       supervisor: parent pipe closes      reaper ends all
//	go run, shell above exec   exec: its parent changes            exec ends all
//	make (--while PID)         exec: the pid is gone               exec ends all
//	supervisor                 reaper: pipe closes                 reaper ends all; exec fails
//	reaper                     supervisor: wait                    supervisor starts another reaper
//	supervisor and reaper      kernel: PR_SET_PDEATHSIG (Linux)    servers end; the next command removes the folder
//	a whole tree, by parent    the supervisor is not in the tree   reaper ends all
//	a server, not on request   exec: Died returns                  exec names it and ends all; up: Down in status
//	a server that is kept      supervisor: it has ended            started again: same port, its data if it has any on disk
//	a paused server            SIGCONT first, then SIGQUIT or SIGKILL
//	the installer              apt continues; its policy file removes itself
//
// Package shop/locking/servertest/daemon starts and ends each server, here and in the tests of one server. It explains
// why both a supervisor and a test process need a second process that waits for their end.
//
// # Design constraints
//
//   - A port in the ephemeral range can be lost, while its server is down, to a
//     client that keeps dialling it. Ports are picked below that range
//     (daemon.FreePorts).
//   - The soft limit of open files is 1,024 on most systems, and a mongod that
//     reaches its limit panics: servers get the hard limit (kind.go).
//   - Debian does not package mongod; a PyPI package contains one. The cache folder
//     may be readable by root only, so mongod runs as the user of the stack (pypi.go).
//   - Debian's PostgreSQL is older than the newest major. `local newest` downloads that one and
//     prints its path, and SHOP_POSTGRES_SERVER makes the stack run it. PostgreSQL refuses to run
//     as root, so root's copy is in /var/cache/shop (pypi.go).
//   - Pids are reused. A flock on the stack's folder shows whether the stack is
//     alive; a start time shows which process a pid means.
//
// # How to add a kind of server
//
// Describe in package daemon how it is started, and add it here to kinds, with its variable and how to find its
// program. The members of a cluster start together with all ports known (etcd3). Join runs
// once when all members answer (mongo3 becomes a replica set there). The standby of
// postgres-standby copies its primary, so its setup waits until that one answers.
package stack
