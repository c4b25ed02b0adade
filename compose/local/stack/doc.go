// Package stack runs real servers for tests, proofs and demos, without Docker,
// and leaves nothing behind in any ending.
//
// # The question
//
// A test against real servers starts them, breaks them and stops them. They must
// also be stopped when the test panics, on Ctrl-C, when CI sends SIGKILL to the
// whole process tree, and while a server is paused. Clean-up code in the process
// that is killed cannot do that.
//
// # The invariant
//
// Nothing of a stack outlives the process that opened it: no server, no process
// of the command that it was opened for, no adopted replica, no file outside the
// user's cache folder, no shared memory. No other process is ever signalled: a
// process is identified by pid and start time, compared while a pidfd is held.
//
// # How
//
//	make ── go run ── exec ──────────────── command (a process group of its own)
//	                   ┊ parent pipe
//	   (a session of its own, child of init)
//	              supervisor ─┬─ postgres ── backends …
//	                   ┊      ├─ redis
//	                   ┊ pipe ├─ etcd
//	                   ┊      └─ mongod
//	                reaper
//
// The supervisor is the parent of all servers. It carries out requests that come
// over a unix socket in the stack's folder (open, start, stop, kill, pause,
// resume, adopt). It has no clean-up code: it exits when the other end of the
// parent pipe closes, which happens in every ending of exec. The reaper waits for
// the supervisor's end, reads the journal, kills every process in it, and removes
// the folder. There is one ending, so each test that ends normally also tests the
// ending by SIGKILL. (The pattern: crash-only software, Candea and Fox, HotOS 2003.)
//
//	server:   Down ──Start──▶ Running ──Pause──▶ Paused ──Resume──▶ Running
//	           ▲                 │                  │
//	           └──Stop, Kill─────┴──────────────────┘
//
// Start returns when the server has answered a query that only this server can
// answer: a foreign Redis that took the port also replies PONG.
//
// # What ends what
//
//	killed                     noticed by                          what follows
//	exec                       supervisor: parent pipe closes      reaper ends all
//	go run, shell above exec   exec: its parent changes            exec ends all
//	make (--while PID)         exec: the pid is gone               exec ends all
//	supervisor                 reaper: pipe closes                 reaper ends all; exec fails
//	reaper                     supervisor: wait                    supervisor starts another reaper
//	both of them               kernel: PR_SET_PDEATHSIG (Linux)    servers end; the next command removes the folder
//	a whole tree, by parent    the supervisor is not in the tree   reaper ends all
//	a server, not on request   exec: Died returns                  exec names it and ends all; up: Down in status
//	a server while paused      SIGCONT first, then SIGQUIT or SIGKILL
//	installer, in the middle   apt goes on; its policy file removes itself
//
// # Facts that shaped it
//
//   - PR_SET_PDEATHSIG fires when the thread that forked ends, so one locked
//     thread forks for all (process.go).
//   - Each PostgreSQL backend is a session and a group of its own, so a group
//     kill misses it. A paused backend does not notice that the postmaster is
//     gone. Backends are found by program and working folder (Linux) or by
//     descent.
//   - A killed PostgreSQL leaves a System V segment outside every folder; the
//     reaper removes it (postgres.go).
//   - A port in the ephemeral range can be lost, while its server is down, to a
//     client that keeps dialling it. Ports are picked below that range
//     (cluster.go).
//   - PostgreSQL refuses to run as root, and clients can make a Redis that runs
//     as root write files. When the stack runs as root, both run as a system
//     user (user.go).
//   - The soft limit of open files is 1,024 on most systems, and a mongod that
//     reaches its limit panics: servers get the hard limit (kind.go).
//   - A mongod keeps the files of a dropped collection open for five minutes, and
//     each test drops a database: the stack sets seconds (mongo.go).
//   - A restarted mongod elects itself before it takes writes, and is in no set
//     before the first one is initiated: what ready asks depends on the data in
//     its folder (mongo.go).
//   - Debian has no mongod. A PyPI package contains one. Its cache folder may be
//     readable by root alone, so mongod runs as the user of the stack (pypi.go).
//   - redis-server is a link to a program that behaves by the name it is called by.
//   - Pids are reused. A flock on the stack's folder says whether the stack is
//     alive; a start time says which process a pid means.
//
// # How to add a kind of server
//
// Add one file beside postgres.go, redis.go, etcd.go and mongo.go that registers
// a kind: how to find its program, its arguments, a query that means ready, its
// variable. The members of a cluster start together with all ports known (etcd3).
// join runs once when all members answer (mongo3 becomes a replica set there).
package stack
