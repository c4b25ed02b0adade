// SPDX-License-Identifier: MIT

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Record is the part of an Instance that another process needs to end the server.
type Record struct {
	Name    string
	Kind    string
	Program string // absolute; by its own name, which may be a link: redis-server is one
	Dir     string
	Ports   []int
	Secret  string
	First   Process // the parent of the server's other processes, in the current or last run
	State   string
}

// States of a server.
const (
	Running = "running"
	Paused  = "paused"
	Down    = "down"
)

// Addr is host:port.
func (r Record) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Ports[0])) }

// tool is the path of a program in the folder of the server's program.
func (r Record) tool(name string) string {
	return filepath.Join(filepath.Dir(RealPath(r.Program)), name)
}

func (r Record) logFile() string { return r.Dir + ".log" }

// logText is the server's log since the last start.
func (r Record) logText() string {
	content, _ := os.ReadFile(r.logFile())
	return string(content)
}

// LastLog returns the last lines of the log since the last start.
func (r Record) LastLog() string { return LastLines(r.logText(), 20) }

// family lists the processes of the server.
func (r Record) family() []Process { return family(r.First, RealPath(r.Program), RealPath(r.Dir)) }

// freeze sends SIGSTOP to each process that is not stopped yet, and fails until none is left.
func (r Record) freeze() error {
	running := 0
	for _, p := range append([]Process{r.First}, r.family()...) {
		d, ok := inspect(p.PID)
		if !ok || d.Process != p || d.state == 'T' || d.state == 'Z' {
			continue
		}
		running++
		if err := p.Signal(syscall.SIGSTOP); err != nil && !errors.Is(err, ErrGone) {
			return err
		}
	}
	if running > 0 {
		return fmt.Errorf("%d of its processes still run after SIGSTOP", running)
	}
	return nil
}

// End sends a server its quick signal and waits, so that the server leaves nothing outside
// its folder, and then kills its remaining processes. A paused server is resumed first, so
// that it receives the signal.
func (r Record) End(k *Kind) error {
	for _, p := range r.family() {
		_ = p.Signal(syscall.SIGCONT)
	}
	_ = r.First.Signal(cmp.Or(k.Quick, syscall.SIGKILL))
	_ = Poll(3*time.Second, func() error {
		if r.First.Alive() {
			return errors.New("it is alive")
		}
		return nil
	})
	err := KillAll(r.family, 5*time.Second)
	_ = k.scrub(r)
	return err
}

// RealPath resolves links: the companions of a program are in the folder of the result, and the
// kernel reports a process's program by it.
func RealPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// LastLines returns the last n lines of a text.
func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
