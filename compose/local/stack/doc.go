// Package stack runs real servers for tests, proofs and demos, without Docker,
// and leaves nothing behind in any ending.
//
// # The question
//
// A test that runs against real servers has to start them, break them, and get
// rid of them: also when it panics, when Ctrl-C comes, when CI sends SIGKILL to
// whatever it finds, and when a server happens to be paused at that moment.
// Clean-up code that runs in the process that may be killed cannot promise that.
//
// # The invariant
//
// Nothing of a stack outlives the process that opened it: no server, no process
// of the command it was opened for, no adopted replica, no file outside the
// user's cache folder, no shared memory. And nobody else's process is ever
// signalled: a process is named by pid and start time, compared through a pidfd.
//
// # How
//
//	make ── go run ── exec ──────────────── command (a process group of its own)
//	                   ┊ lifeline (a pipe)
//	   (a session of its own, nobody's child)
//	              supervisor ─┬─ postgres ── backends …
//	                   ┊      ├─ redis
//	                   ┊ pipe ├─ etcd
//	                   ┊      └─ mongod
//	              undertaker
//
// The supervisor is the parent of all servers and carries out requests that come
// over a unix socket in the stack's folder (open, start, stop, kill, pause,
// resume, adopt). It has no clean-up: it ends by ending, when the lifeline's
// other end closes, that is when exec is gone, in whatever way. The undertaker
// waits for nothing but the supervisor's end, reads the journal, kills all that
// is in it, and removes the folder. So there is one ending, and every test that
// ends normally tests the one after SIGKILL, too. (The pattern: crash-only
// software, Candea and Fox, HotOS 2003.)
//
//	server:   Down ──Start──▶ Running ──Pause──▶ Paused ──Resume──▶ Running
//	           ▲                 │                  │
//	           └──Stop, Kill─────┴──────────────────┘
//
// Start returns when the server has answered a query that only this very server
// can answer: someone else's Redis on a port that was lost says PONG as well.
//
// # What ends what
//
//	killed                     noticed by                          what follows
//	exec                       supervisor: lifeline closes         undertaker buries all
//	go run, shell above exec   exec: its parent changes            exec ends all
//	make (--while PID)         exec: the pid is gone               exec ends all
//	supervisor                 undertaker: pipe closes             undertaker buries all; exec fails
//	undertaker                 supervisor: wait                    another undertaker
//	both of them               kernel: PR_SET_PDEATHSIG (Linux)    servers end; the next command sweeps
//	a whole tree, by parent    the supervisor is not in the tree   undertaker buries all
//	a server, unasked          exec: Died answers                  exec names it and ends all; up: Down in status
//	a server while paused      SIGCONT first, then SIGQUIT or SIGKILL
//	installer, in the middle   apt goes on; its policy file removes itself
//
// # Facts that shaped it
//
//   - PR_SET_PDEATHSIG fires when the thread that forked ends, so one locked
//     thread forks for all (spawn.go).
//   - Each PostgreSQL backend is a session and a group of its own, so a group
//     kill misses them, and one that is paused does not notice that the first
//     process is gone. They are found by program and working folder (Linux) or
//     by descent.
//   - A killed PostgreSQL leaves a System V segment outside every folder; the
//     undertaker removes it (postgres.go).
//   - A port from the range of outgoing connections can be lost to a client that
//     keeps dialling it while its server is down, so ports come from below it
//     (ports.go).
//   - PostgreSQL refuses root, and a Redis that runs as root can be told to write
//     files: when we are root, they run as a user of the system (user.go).
//   - A login's limit of open files is 1,024 on most systems, and a mongod that
//     reaches its limit panics: servers get the hard limit (files.go).
//   - A mongod keeps the files of a dropped collection open for five minutes, and
//     each test drops a database: it is told to keep them for seconds (mongo.go).
//   - A mongod that was started again elects itself before it takes writes, and
//     has no set at all before the first one is made: what ready asks depends on
//     what stands in its folder (mongo.go).
//   - Debian has no mongod. PyPI has one inside a package; it may lie in a folder
//     that root alone can enter, so it runs as whoever we are (wheel.go).
//   - redis-server is a link whose meaning depends on the name it is called by.
//   - A pid may be used again. A lock that the kernel drops (flock) tells whether
//     a stack lives, a start time whom a pid means.
//
// # One more kind of server
//
// is one more file beside postgres.go, redis.go, etcd.go and mongo.go that registers a
// kind: how to find it, its arguments, a query that means ready, its variable.
// Several members are started together with all ports known (etcd3 does so);
// join runs once when all of them answer (mongo3 becomes a replica set there).
package stack
