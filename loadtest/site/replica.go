// SPDX-License-Identifier: MIT

package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/traffic"
)

// Program defines how to start one replica of the service.
type Program struct {
	Path  string
	Args  func(n int, listen, metrics string) []string // of replica n
	Spawn func(*exec.Cmd) error                        // starts a child that dies with this process, where the system supports that
	Adopt func(pid int) error                          // reports the child to a supervisor; may be nil
	Logs  string                                       // folder for one log file per replica

	// Sidecar returns the arguments of one more process, which gets no load: it runs beside the
	// replicas, and is restarted when it exits. May be nil.
	Sidecar func() []string
}

// readyWait bounds the start of a replica, stopWait its graceful shutdown.
const (
	readyWait = 15 * time.Second
	stopWait  = 20 * time.Second // its requests, and then each pool, may take 5 s
)

// Replicas are child processes that serve the same database. A restarted replica keeps its addresses.
type Replicas struct {
	program  Program
	all      []*replica
	Counters *Counters
	UnderWay func(n int) int  // how many requests replica n has not answered; may be nil
	sidecar  *sidecar         // nil without one
	marks    []net.PacketConn // reserve the ports

	// busyWait bounds how long Kill waits for a request to interrupt, and how long for the client to
	// see that the last one is cut off.
	busyWait time.Duration
}

type replica struct {
	addr, metrics string
	process
}

// StartReplicas starts n replicas and waits until all are ready.
func StartReplicas(ctx context.Context, p Program, n int, counters *Counters) (*Replicas, error) {
	rs := &Replicas{program: p, Counters: counters, busyWait: busyWait}
	addrs, marks, err := freeAddrs(2 * n)
	if err != nil {
		return nil, err
	}
	rs.marks = marks
	for i := range n {
		rs.all = append(rs.all, &replica{addr: addrs[2*i], metrics: addrs[2*i+1]})
	}
	errs := make([]error, n)
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() { errs[i] = rs.Start(ctx, i) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		rs.KillAll()
		return nil, err
	}
	if p.Sidecar != nil {
		rs.sidecar = startSidecar(p)
	}
	return rs, nil
}

// Ports of replicas are below those of outgoing connections (32768 and up on Linux): one of thousands of
// connections could otherwise occupy the port of a replica that is being restarted. The servers of tests
// use ports below this range, stacks use ports above it.
const (
	portFirst = 15000
	portCount = 5000
)

// freeAddrs picks ports without a listener. The UDP port of the same number, in marks, reserves each against
// other callers, also while its replica is down.
func freeAddrs(n int) (addrs []string, marks []net.PacketConn, err error) {
	for range portCount {
		if len(addrs) == n {
			return addrs, marks, nil
		}
		addr := fmt.Sprintf("127.0.0.1:%d", portFirst+rand.IntN(portCount))
		var mark net.PacketConn
		if mark, err = net.ListenPacket("udp", addr); err != nil {
			continue // taken
		}
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err != nil {
			_ = mark.Close()
			continue
		}
		_ = l.Close()
		addrs, marks = append(addrs, addr), append(marks, mark)
	}
	closeAll(marks)
	return nil, nil, fmt.Errorf("no free port for a replica: %w", err)
}

func closeAll(marks []net.PacketConn) {
	for _, mark := range marks {
		_ = mark.Close()
	}
}

// At returns Replicas that run already at these addresses. They can be asked, but neither started nor ended.
func At(addrs ...string) *Replicas {
	rs := &Replicas{Counters: NewCounters("")}
	for _, addr := range addrs {
		rs.all = append(rs.all, &replica{addr: addr, metrics: addr})
	}
	return rs
}

// Process is a process of the service that runs now.
type Process struct {
	Name    string
	PID     int
	Metrics string // the address of its /metrics; "": it has none
}

// Processes returns the replicas, and the sidecar if there is one.
func (rs *Replicas) Processes() (all []Process) {
	for n, r := range rs.all {
		all = append(all, Process{fmt.Sprintf("replica %d", n+1), r.pid(), r.metrics})
	}
	if rs.sidecar != nil {
		all = append(all, Process{"sidecar", rs.sidecar.pid(), ""})
	}
	return all
}

// Len returns the number of replicas.
func (rs *Replicas) Len() int { return len(rs.all) }

// Bases returns the URLs of the replicas, by number.
func (rs *Replicas) Bases() []string {
	var bases []string
	for _, r := range rs.all {
		bases = append(bases, "http://"+r.addr)
	}
	return bases
}

// busyWait is the default of Replicas.busyWait. wireWait is longer than an answer takes from the replica to
// the client.
const (
	busyWait = time.Second
	wireWait = 2 * time.Millisecond
)

// Kill kills replica n in the middle of a request. A kill that interrupts nothing shows little, and on a
// fast machine a replica is idle most of the time: Kill therefore stops the replica first, and resumes it
// if it had answered everything. The counters of the replica are read before. Kill returns when the
// client has seen that every request under way is cut off.
func (rs *Replicas) Kill(ctx context.Context, n int) error {
	rs.Counters.Keep(ctx, rs.all[n].metrics)
	for end := time.Now().Add(rs.busyWait); ; {
		rs.awaitWork(n, end)
		rs.all[n].signal(syscall.SIGSTOP)
		time.Sleep(wireWait)
		if rs.UnderWay == nil || rs.UnderWay(n) > 0 || time.Now().After(end) {
			break
		}
		rs.all[n].signal(syscall.SIGCONT)
	}
	<-rs.all[n].signal(syscall.SIGKILL)
	for end := time.Now().Add(rs.busyWait); rs.UnderWay != nil && rs.UnderWay(n) > 0 && time.Now().Before(end); {
		time.Sleep(pollEvery)
	}
	return nil
}

// pollEvery is short compared with the time that a request takes.
const pollEvery = 100 * time.Microsecond

// awaitWork waits, at most until end, for a request that replica n has not answered.
func (rs *Replicas) awaitWork(n int, end time.Time) {
	for rs.UnderWay != nil && rs.UnderWay(n) == 0 && time.Now().Before(end) {
		time.Sleep(pollEvery)
	}
}

// Pause stops replica n in the middle of a request, with SIGSTOP, which the replica cannot notice.
func (rs *Replicas) Pause(n int) error {
	rs.awaitWork(n, time.Now().Add(rs.busyWait))
	return rs.all[n].send(syscall.SIGSTOP)
}

// PauseInBatch makes replica n, which has a failpoint stop-batch, stop in its next batch of several requests. It
// returns false if no batch came in time.
func (rs *Replicas) PauseInBatch(ctx context.Context, n int, within time.Duration) (bool, error) {
	if err := rs.all[n].send(syscall.SIGUSR1); err != nil {
		return false, err
	}
	for end := time.Now().Add(within); time.Now().Before(end) && ctx.Err() == nil; fault.Wait(ctx, time.Millisecond) {
		if rs.Stopped(n) {
			return true, nil
		}
	}
	return rs.Stopped(n), rs.all[n].send(syscall.SIGUSR2)
}

// Resume continues a paused replica.
func (rs *Replicas) Resume(n int) error { return rs.all[n].send(syscall.SIGCONT) }

// Destroy kills replica n at once, paused or not. It reports, by the wait status, whether SIGKILL is what
// ended the replica.
func (rs *Replicas) Destroy(n int) bool {
	<-rs.all[n].signal(syscall.SIGKILL)
	return rs.all[n].killed()
}

// Stopped reports whether the kernel shows the process of replica n as stopped.
func (rs *Replicas) Stopped(n int) bool {
	rs.all[n].mu.Lock()
	defer rs.all[n].mu.Unlock()
	if rs.all[n].cmd == nil {
		return false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", rs.all[n].cmd.Process.Pid))
	_, state, found := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	return err == nil && found && strings.HasPrefix(state, "T")
}

// Healthy reports whether a field in the /readyz of replica n is "ok".
func (rs *Replicas) Healthy(ctx context.Context, n int, field string) bool {
	ctx, cancel := context.WithTimeout(ctx, scrapeWait)
	defer cancel()
	text, err := traffic.Fetch(ctx, "http://"+rs.all[n].addr+"/readyz", nil)
	var health map[string]string
	return err == nil && json.Unmarshal(text, &health) == nil && health[field] == "ok"
}

// Killed reports whether the current process of replica n, which has exited, was ended by SIGKILL.
func (rs *Replicas) Killed(n int) bool { return rs.all[n].killed() }

// Ended returns a channel that is closed when the current process of replica n has exited.
func (rs *Replicas) Ended(n int) <-chan struct{} { return rs.all[n].signal(syscall.Signal(0)) }

// Stop stops the sidecar, reads the counters of the replicas, sends SIGTERM to all of them, and kills those
// that do not exit in time. It lists the first of these.
func (rs *Replicas) Stop(ctx context.Context) (hung []string) {
	rs.sidecar.stop()
	for _, r := range rs.all {
		rs.Counters.Keep(ctx, r.metrics)
	}
	var ending []<-chan struct{}
	for _, r := range rs.all {
		ending = append(ending, r.signal(syscall.SIGTERM))
	}
	limit := time.After(stopWait)
	for n, ended := range ending {
		select {
		case <-ended:
		case <-limit:
			hung = append(hung, fmt.Sprintf("replica %d still runs %v after SIGTERM", n+1, stopWait))
			rs.KillAll()
		}
	}
	return hung
}

// Exits lists the replicas that exited by themselves after they were ready. (A failpoint may kill its replica.)
func (rs *Replicas) Exits() (found []string) {
	for n, r := range rs.all {
		r.mu.Lock()
		for _, exit := range r.exits {
			found = append(found, fmt.Sprintf("replica %d %s", n+1, exit))
		}
		r.mu.Unlock()
	}
	return found
}

// KillAll kills all replicas and the sidecar. It may be called at any time, and more than once.
func (rs *Replicas) KillAll() {
	rs.sidecar.kill()
	for _, r := range rs.all {
		<-r.signal(syscall.SIGKILL)
	}
	closeAll(rs.marks)
}

// Start starts replica n, with extra arguments after its own, and waits until it is ready. A replica that
// extra gives a failpoint may kill itself before it is seen ready: Start then returns nil, and the
// channel of Ended is closed.
func (rs *Replicas) Start(ctx context.Context, n int, extra ...string) error {
	r := rs.all[n]
	if err := r.start(ctx, &rs.program, append(rs.program.Args(n, r.addr, r.metrics), extra...), rs.logFile(n)); err != nil {
		return fmt.Errorf("replica %d: %w", n+1, err)
	}
	err := rs.waitReady(ctx, n)
	switch {
	case errors.Is(err, errEnded) && len(extra) > 0 && r.killed():
		return nil
	case err == nil && len(extra) > 0:
		r.noteExits(watchCrashes)
	case err == nil:
		r.noteExits(watchAll)
	}
	return err
}

var errEnded = errors.New("exited before it was ready")

func (rs *Replicas) logFile(n int) string {
	return filepath.Join(rs.program.Logs, fmt.Sprintf("replica-%d.log", n+1))
}

func (rs *Replicas) waitReady(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		if _, err := traffic.Fetch(ctx, "http://"+rs.all[n].addr+"/readyz", nil); err == nil {
			return nil
		}
		select {
		case <-rs.Ended(n):
			return fmt.Errorf("replica %d %w:\n%s", n+1, errEnded, tail(rs.logFile(n)))
		default:
		}
		if !fault.Wait(ctx, 10*time.Millisecond) {
			return fmt.Errorf("replica %d is not ready after %v:\n%s", n+1, readyWait, tail(rs.logFile(n)))
		}
	}
}

// tail returns the last lines of a log, for an error message.
func tail(file string) string {
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
