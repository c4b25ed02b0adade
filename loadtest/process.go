package loadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"shop/loadtest/fault"
)

// Start starts replica n, with extra arguments behind its own, and waits until
// it says that it is ready; or until it killed itself, which a replica with a failpoint
// may do before it was seen ready: Ended tells.
func (rs *Replicas) Start(ctx context.Context, n int, extra ...string) error {
	r := rs.all[n]
	cmd, done, err := rs.program.start(append(rs.program.Args(n, r.addr, r.metrics), extra...), rs.logFile(n))
	if err != nil {
		return fmt.Errorf("replica %d: %w", n+1, err)
	}
	r.mu.Lock()
	r.cmd, r.done = cmd, done
	r.mu.Unlock()
	err = rs.waitReady(ctx, n, done)
	if errors.Is(err, errEnded) && len(extra) > 0 && killed(cmd) {
		return nil
	}
	return err
}

// start starts a process of the program, whose output goes to the end of a log.
// The channel is closed when it has ended.
func (p *Program) start(args []string, logFile string) (*exec.Cmd, chan struct{}, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(p.Path, args...)
	cmd.Env = cleanEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.Spawn(cmd); err != nil {
		return nil, nil, fmt.Errorf("start: %w", err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // a killed one is not an error
	if p.Adopt != nil {
		if err := p.Adopt(cmd.Process.Pid); err != nil {
			_ = cmd.Process.Kill()
			<-done
			return nil, nil, fmt.Errorf("tell the supervisor: %w", err)
		}
	}
	return cmd, done, nil
}

// killed tells whether a process that has ended was ended by SIGKILL.
func killed(cmd *exec.Cmd) bool {
	status, known := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return known && status.Signaled() && status.Signal() == syscall.SIGKILL
}

var errEnded = errors.New("ended before it was ready")

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

// send sends a signal. A process that has ended is an error.
func (r *replica) send(sig os.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return os.ErrProcessDone
	}
	return r.cmd.Process.Signal(sig)
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
