package loadtest

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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"shop/loadtest/fault"
)

// Program says how to start one replica of the service.
type Program struct {
	Path  string
	Args  func(n int, listen, metrics string) []string // of replica n
	Spawn func(*exec.Cmd) error                        // starts a child that cannot outlive us, as far as the system can promise that
	Adopt func(pid int) error                          // tells a supervisor of it; may be nil
	Logs  string                                       // folder for one log file per replica

	// Sidecar gives the arguments of one more process, which gets no load: it runs
	// beside the replicas, and is started again when it ends. May be nil.
	Sidecar func() []string
}

// readyWait bounds the start of a replica, stopWait its graceful end.
const (
	readyWait = 15 * time.Second
	stopWait  = 10 * time.Second
)

// Replicas are child processes that serve the same database. They keep their
// addresses over a restart, so that clients find them again.
type Replicas struct {
	program  Program
	all      []*replica
	counters *Counters
	UnderWay func(n int) int // how many requests replica n has not answered; may be nil
	sidecar  *sidecar        // nil without one

	// How long a kill waits for a request to interrupt, and for the last of those that it cut off.
	busyWait time.Duration
}

type replica struct {
	addr, metrics string
	process
}

// StartReplicas starts n of them and waits until all are ready. What the flow counts is
// read beside what all count of their locks.
func StartReplicas(ctx context.Context, p Program, n int, of *Flow) (*Replicas, error) {
	rs := &Replicas{program: p, counters: NewCounters(of), busyWait: busyWait}
	addrs, err := freeAddrs(2 * n)
	if err != nil {
		return nil, err
	}
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

// Ports of replicas lie below those that systems take for outgoing connections
// (32768 and up on Linux): one of the thousands of those could otherwise sit on
// the port of a replica that was killed and is about to start again. Tests take
// ports for servers below them, and stacks above.
const (
	portFirst = 15000
	portCount = 5000
)

// freeAddrs picks ports without a listener, all at once so that they differ.
func freeAddrs(n int) ([]string, error) {
	var addrs []string
	var err error
	for range portCount {
		if len(addrs) == n {
			return addrs, nil
		}
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", portFirst+rand.IntN(portCount))); err != nil {
			continue // taken
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return nil, fmt.Errorf("no free port for a replica: %w", err)
}

// Len is how many there are.
func (rs *Replicas) Len() int { return len(rs.all) }

// Process is the id of the present process of replica n, and the address of its /metrics.
func (rs *Replicas) Process(n int) (pid func() int, metrics string) {
	return rs.all[n].pid, rs.all[n].metrics
}

// Sidecar is the id of the present process of the sidecar; nil: there is none.
func (rs *Replicas) Sidecar() func() int {
	if rs.sidecar == nil {
		return nil
	}
	return rs.sidecar.pid
}

// Bases are the URLs of the replicas, by number.
func (rs *Replicas) Bases() []string {
	var bases []string
	for _, r := range rs.all {
		bases = append(bases, "http://"+r.addr)
	}
	return bases
}

// busyWait is that of all replicas but those of tests. wireWait is longer than an answer is on
// its way.
const (
	busyWait = time.Second
	wireWait = 2 * time.Millisecond
)

// Kill ends replica n in the middle of a request: a kill that interrupts nothing
// shows little, and on a quick machine a replica is idle most of the time. So it is stopped
// first, and goes on if it had answered everything. What it has counted so far is read before.
// Kill returns when every request that was under way is known to be cut off.
func (rs *Replicas) Kill(ctx context.Context, n int) error {
	rs.counters.Keep(ctx, rs.all[n].metrics)
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

// pollEvery is short beside the time that a request takes.
const pollEvery = 100 * time.Microsecond

// awaitWork waits until then for a request that replica n has not answered.
func (rs *Replicas) awaitWork(n int, end time.Time) {
	for rs.UnderWay != nil && rs.UnderWay(n) == 0 && time.Now().Before(end) {
		time.Sleep(pollEvery)
	}
}

// Pause stops replica n in the middle of a request (SIGSTOP): it knows nothing of it.
func (rs *Replicas) Pause(n int) error {
	rs.awaitWork(n, time.Now().Add(rs.busyWait))
	return rs.all[n].send(syscall.SIGSTOP)
}

// Resume lets it go on.
func (rs *Replicas) Resume(n int) error { return rs.all[n].send(syscall.SIGCONT) }

// Destroy ends replica n, stopped or not, whatever it is doing. It tells whether that is what
// ended it, by its wait status.
func (rs *Replicas) Destroy(n int) bool {
	<-rs.all[n].signal(syscall.SIGKILL)
	return rs.all[n].killed()
}

// Stopped tells whether the process of replica n stands still, as the kernel shows it.
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

// Healthy tells whether replica n says that a field of its /readyz is ok.
func (rs *Replicas) Healthy(ctx context.Context, n int, field string) bool {
	ctx, cancel := context.WithTimeout(ctx, scrapeWait)
	defer cancel()
	text, err := fetch(ctx, "http://"+rs.all[n].addr+"/readyz", nil)
	var health map[string]string
	return err == nil && json.Unmarshal(text, &health) == nil && health[field] == "ok"
}

// Ended returns a channel that is closed when the present process of replica n
// has ended, for whatever reason.
func (rs *Replicas) Ended(n int) <-chan struct{} { return rs.all[n].signal(syscall.Signal(0)) }

// Stop reads the last counts, asks all to end, and kills those that do not. The
// sidecar is stopped before.
func (rs *Replicas) Stop(ctx context.Context) {
	rs.sidecar.stop()
	for _, r := range rs.all {
		rs.counters.Keep(ctx, r.metrics)
	}
	var ending []<-chan struct{}
	for _, r := range rs.all {
		ending = append(ending, r.signal(syscall.SIGTERM))
	}
	limit := time.After(stopWait)
	for _, ended := range ending {
		select {
		case <-ended:
		case <-limit:
			rs.KillAll()
		}
	}
}

// KillAll leaves none behind. It may be called at any time, and again.
func (rs *Replicas) KillAll() {
	rs.sidecar.kill()
	for _, r := range rs.all {
		<-r.signal(syscall.SIGKILL)
	}
}

// process is one of a Program, in one life after the other.
type process struct {
	mu   sync.Mutex
	cmd  *exec.Cmd     // of the latest life; nil: there was none
	done chan struct{} // closed when it has ended
}

// start begins a life, whose output goes to the end of a log; not when ctx has ended.
func (p *process) start(ctx context.Context, of *Program, args []string, logFile string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own copy
	cmd, done := exec.Command(of.Path, args...), make(chan struct{})
	// What it runs with is on its command line, whatever the caller's environment says.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(setting string) bool { return strings.HasPrefix(setting, "SHOP_") })
	cmd.Stdout, cmd.Stderr = log, log
	if err := of.Spawn(cmd); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	p.cmd, p.done = cmd, done
	go func() { _ = cmd.Wait(); close(done) }() // a killed one is not an error
	if of.Adopt == nil {
		return nil
	}
	if err := of.Adopt(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		<-done
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	return nil
}

// pid is the id of the process; 0: it was never started.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// send sends a signal. A process that has ended is an error.
func (p *process) send(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(sig)
}

// signal sends a signal to a process that may have ended by itself, and returns a channel
// that is closed when it has ended.
func (p *process) signal(sig os.Signal) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil { // never started
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	_ = p.cmd.Process.Signal(sig)
	return p.done
}

// killed tells whether a process that has ended was ended by SIGKILL.
func (p *process) killed() bool {
	status, known := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return known && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Start starts replica n, with extra arguments behind its own, and waits until
// it says that it is ready; or until it killed itself, which a replica with a failpoint
// may do before it was seen ready: Ended tells.
func (rs *Replicas) Start(ctx context.Context, n int, extra ...string) error {
	r := rs.all[n]
	if err := r.start(ctx, &rs.program, append(rs.program.Args(n, r.addr, r.metrics), extra...), rs.logFile(n)); err != nil {
		return fmt.Errorf("replica %d: %w", n+1, err)
	}
	err := rs.waitReady(ctx, n)
	if errors.Is(err, errEnded) && len(extra) > 0 && r.killed() {
		return nil
	}
	return err
}

var errEnded = errors.New("ended before it was ready")

func (rs *Replicas) logFile(n int) string {
	return filepath.Join(rs.program.Logs, fmt.Sprintf("replica-%d.log", n+1))
}

func (rs *Replicas) waitReady(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		if _, err := fetch(ctx, "http://"+rs.all[n].addr+"/readyz", nil); err == nil {
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

// tail is the end of a log, for an error message.
func tail(file string) string {
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// sidecar is a process that works on the same database as the replicas, and is
// started again when it ends: a fault that takes its servers away may end it too.
type sidecar struct {
	process
	end   context.CancelFunc
	ended chan struct{}
}

// sidecarRest is between two lives of it.
const sidecarRest = 100 * time.Millisecond

// startSidecar begins its first life. What goes wrong is in its log.
func startSidecar(p Program) *sidecar {
	ctx, end := context.WithCancel(context.Background())
	s := &sidecar{end: end, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for again := true; again; again = fault.Wait(ctx, sidecarRest) {
			_ = s.start(ctx, &p, p.Sidecar(), filepath.Join(p.Logs, "sidecar.log"))
			<-s.signal(syscall.Signal(0))
		}
	}()
	return s
}

// stop asks it to end, and kills it if it does not.
func (s *sidecar) stop() {
	if s == nil {
		return
	}
	s.end()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopWait):
		s.kill()
	}
}

func (s *sidecar) kill() {
	if s == nil {
		return
	}
	s.end()
	s.signal(syscall.SIGKILL)
	<-s.ended
}
