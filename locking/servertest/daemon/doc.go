// SPDX-License-Identifier: MIT

// Package daemon starts servers as children of this process, and is the one place that knows how: arguments, first
// data, the query that shows that a server serves, the user it runs as, and how it ends.
//
//	Kind      one kind of server: Postgres, Redis, Etcd, ZooKeeper, and mongod.Kind in a package of its own, which needs
//	          MongoDB's client. To add a kind, write a function that returns it.
//	Instance  a server, or one member of a cluster: start, stop, kill, pause, resume, keep, with the same port and data.
//	Record    the part of it that another process needs to end the server.
//	Process   a pid with its start time, so that no signal reaches another process.
//
// Two packages use it. Package servertest starts servers for one test, in the test process, and fails the test when
// one dies. The stack of compose/local starts servers for a command and all processes of it, in a process of its own,
// which a kill of the command's processes does not reach. In both, on Linux, the kernel ends a server when its parent
// ends. That is not enough: other systems have no such signal, a paused process gets SIGQUIT only when it is resumed,
// and files remain. Therefore each has a reaper, a process that waits for the end of the first: a shell per server here,
// and one for a stack, which also ends processes that are no children of the supervisor, and removes the folder.
//
// # Design constraints
//
//   - PR_SET_PDEATHSIG fires when the thread that forked ends, so a locked thread forks each server, and waits for it.
//   - Each PostgreSQL backend has its own session and group, so a group kill misses it. A paused backend does not notice
//     that the postmaster is gone. Backends are found by program and working folder (Linux) or by descent.
//   - A killed PostgreSQL leaves a System V segment outside every folder, which Scrub removes.
//   - PostgreSQL refuses to run as root, and clients can make a Redis that runs as root write files.
//   - redis-server is a link to a program that decides by its name what it is.
//   - A mongod keeps the files of a dropped collection open for five minutes, and each test drops a database: mongod.Kind
//     reduces this to seconds.
//   - A restarted mongod elects itself before it accepts writes, and a new one is in no set until the set is initiated:
//     the ready query depends on the data in its folder.
//   - ZooKeeper's program is java, and a JVM leaves a file in /tmp unless it is told not to.
package daemon
