package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Program says how to start one replica of the service.
type Program struct {
	Path  string
	Args  func(listen, metrics string) []string
	Spawn func(*exec.Cmd) error // starts a child that cannot outlive us, as far as the system can promise that
	Adopt func(pid int) error   // tells a supervisor of it; may be nil
	Logs  string                // folder for one log file per replica
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
	Counters *Counters
}

type replica struct {
	addr, metrics string
	mu            sync.Mutex
	cmd           *exec.Cmd
	done          chan struct{} // closed when the process has ended
}

// StartReplicas starts n of them and waits until all are ready.
func StartReplicas(ctx context.Context, p Program, n int) (*Replicas, error) {
	rs := &Replicas{program: p, Counters: NewCounters()}
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
	return rs, nil
}

// freeAddrs picks ports that nobody listens on, all at once so that they differ.
func freeAddrs(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// Len is how many there are.
func (rs *Replicas) Len() int { return len(rs.all) }

// Bases are the URLs of the replicas, by number.
func (rs *Replicas) Bases() []string {
	var bases []string
	for _, r := range rs.all {
		bases = append(bases, "http://"+r.addr)
	}
	return bases
}

// Start starts replica n and waits until it says that it is ready.
func (rs *Replicas) Start(ctx context.Context, n int) error {
	r := rs.all[n]
	log, err := os.OpenFile(rs.logFile(n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(rs.program.Path, rs.program.Args(r.addr, r.metrics)...)
	cmd.Env = cleanEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	if err := rs.program.Spawn(cmd); err != nil {
		return fmt.Errorf("start replica %d: %w", n+1, err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // a killed replica is not an error
	r.mu.Lock()
	r.cmd, r.done = cmd, done
	r.mu.Unlock()
	if rs.program.Adopt != nil {
		if err := rs.program.Adopt(cmd.Process.Pid); err != nil {
			return fmt.Errorf("replica %d: tell the supervisor: %w", n+1, err)
		}
	}
	return rs.waitReady(ctx, n, done)
}

func (rs *Replicas) logFile(n int) string {
	return filepath.Join(rs.program.Logs, fmt.Sprintf("replica-%d.log", n+1))
}

// cleanEnv takes the shop's own settings away: what a replica runs with is on
// its command line, whatever the caller's environment says.
func cleanEnv(env []string) []string {
	var clean []string
	for _, setting := range env {
		if !strings.HasPrefix(setting, "SHOP_") {
			clean = append(clean, setting)
		}
	}
	return clean
}

func (rs *Replicas) waitReady(ctx context.Context, n int, done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		if get(ctx, "http://"+rs.all[n].addr+"/readyz") == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("replica %d ended before it was ready:\n%s", n+1, tail(rs.logFile(n)))
		default:
		}
		if !pause(ctx, 10*time.Millisecond) {
			return fmt.Errorf("replica %d is not ready after %v:\n%s", n+1, readyWait, tail(rs.logFile(n)))
		}
	}
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

// tail is the end of a log, for an error message.
func tail(file string) string {
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// Kill ends replica n at once. What it has counted so far is read before.
func (rs *Replicas) Kill(ctx context.Context, n int) error {
	rs.Counters.Keep(ctx, rs.all[n].metrics)
	<-rs.all[n].signal(syscall.SIGKILL)
	return nil
}

// signal returns a channel that is closed when the process has ended.
func (r *replica) signal(sig os.Signal) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil { // never started
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	_ = r.cmd.Process.Signal(sig) // it may have ended by itself
	return r.done
}

// Stop reads the last counts, asks all to end, and kills who does not.
func (rs *Replicas) Stop(ctx context.Context) {
	for _, r := range rs.all {
		rs.Counters.Keep(ctx, r.metrics)
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
	for _, r := range rs.all {
		<-r.signal(syscall.SIGKILL)
	}
}
