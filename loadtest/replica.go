package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"syscall"
	"time"
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
	Counters *Counters
	UnderWay func(n int) int // how many requests replica n has not answered; may be nil
	sidecar  *sidecar        // nil without one
}

type replica struct {
	addr, metrics string
	mu            sync.Mutex
	cmd           *exec.Cmd
	done          chan struct{} // closed when the process has ended
}

// StartReplicas starts n of them and waits until all are ready. Their counters are read
// beside those of their locks.
func StartReplicas(ctx context.Context, p Program, n int, counters map[string]map[string]string) (*Replicas, error) {
	rs := &Replicas{program: p, Counters: NewCounters(counters)}
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
// the port of a replica that was killed and is about to start again.
const (
	portFirst = 10000
	portCount = 10000
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

// Bases are the URLs of the replicas, by number.
func (rs *Replicas) Bases() []string {
	var bases []string
	for _, r := range rs.all {
		bases = append(bases, "http://"+r.addr)
	}
	return bases
}

// busyWait is how long a kill waits for a request to interrupt.
const busyWait = time.Second

// Kill ends replica n in the middle of a request: a kill that interrupts nothing
// shows little, and on a quick machine a replica is idle most of the time. What
// it has counted so far is read before.
func (rs *Replicas) Kill(ctx context.Context, n int) error {
	rs.Counters.Keep(ctx, rs.all[n].metrics)
	rs.awaitWork(n)
	<-rs.all[n].signal(syscall.SIGKILL)
	return nil
}

// awaitWork waits a while for a request that replica n has not answered.
func (rs *Replicas) awaitWork(n int) {
	for end := time.Now().Add(busyWait); rs.UnderWay != nil && rs.UnderWay(n) == 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Microsecond)
	}
}

// Pause stops replica n in the middle of a request (SIGSTOP): it knows nothing of it.
func (rs *Replicas) Pause(n int) error {
	rs.awaitWork(n)
	return rs.all[n].send(syscall.SIGSTOP)
}

// Resume lets it go on.
func (rs *Replicas) Resume(n int) error { return rs.all[n].send(syscall.SIGCONT) }

// Ended returns a channel that is closed when the present process of replica n
// has ended, for whatever reason.
func (rs *Replicas) Ended(n int) <-chan struct{} { return rs.all[n].signal(syscall.Signal(0)) }

// Stop reads the last counts, asks all to end, and kills those that do not. The
// sidecar is stopped before.
func (rs *Replicas) Stop(ctx context.Context) {
	rs.sidecar.stop()
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
	rs.sidecar.kill()
	for _, r := range rs.all {
		<-r.signal(syscall.SIGKILL)
	}
}

// private asks replicas about themselves. It keeps no connection: the process at
// the other end may be another one next time.
var private = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := private.Do(req)
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
