package loadtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

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
// its command line, whatever the caller's environment says. (SHOP_TEST_… tells a
// test binary to be the program.)
func cleanEnv(env []string) []string {
	var clean []string
	for _, setting := range env {
		if !strings.HasPrefix(setting, "SHOP_") || strings.HasPrefix(setting, "SHOP_TEST_") {
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

// tail is the end of a log, for an error message.
func tail(file string) string {
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
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
