// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shop/locking/locktest"
)

const processes = "it starts the program"

// piped is the shop in a process whose standard error is a pipe.
type piped struct {
	*replica
	cmd    *exec.Cmd
	reader *os.File
}

// fullPipe returns a pipe into which no byte more fits.
func fullPipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	// The child shares the write end's flags: it must block, as the pipe of a shell does.
	must(t, func() error { return syscall.SetNonblock(ends[1], true) })
	for err := error(nil); err == nil; {
		_, err = syscall.Write(ends[1], []byte("an earlier line\n"))
	}
	must(t, func() error { return syscall.SetNonblock(ends[1], false) })
	reader, writer = os.NewFile(uintptr(ends[0]), "reader"), os.NewFile(uintptr(ends[1]), "writer")
	t.Cleanup(func() { reader.Close(); writer.Close() })
	return reader, writer
}

// startPiped starts the shop with a full pipe as standard error. The ports are chosen before: the log cannot tell them.
func startPiped(t *testing.T, key string, before []string, args ...string) *piped {
	t.Helper()
	p := &piped{replica: &replica{t: t, key: key, end: make(chan error, 1)}}
	var writer *os.File
	p.reader, writer = fullPipe(t)
	command := append(before, os.Args[0])
	p.cmd = exec.CommandContext(t.Context(), command[0], append(command[1:], args...)...)
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), asShop+"=1"), writer
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	go func() { p.end <- p.cmd.Wait() }()
	return p
}

func startPipedServer(t *testing.T, flags ...string) *piped {
	t.Helper()
	url, keys := newDatabase(t)
	address, metrics := freeAddress(t), freeAddress(t)
	p := startPiped(t, keys["alice"], nil, append([]string{
		"serve", "--strategy=row", "--listen", address, "--metrics-listen", metrics, "--postgres-url", url, "--lock-prefix", t.Name(),
	}, flags...)...)
	p.url, p.metrics = "http://"+address, "http://"+metrics+"/metrics"
	locktest.Eventually(t, "serving", p.alive)
	return p
}

// alive does not wait for an answer as the clients of replica do.
func (p *piped) alive() bool {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(p.url + "/livez")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// wantEnd sends a signal and expects exit status 0 within the time.
func (p *piped) wantEnd(sig syscall.Signal, within time.Duration) {
	p.t.Helper()
	sent := time.Now()
	must(p.t, func() error { return p.cmd.Process.Signal(sig) })
	select {
	case err := <-p.end:
		if err != nil {
			p.t.Errorf("after %v: %v", sig, err)
		}
		p.t.Logf("ended %v after %v", time.Since(sent), sig)
	case <-time.After(within):
		p.t.Errorf("after %v: not ended within %v", sig, within)
	}
}

// flood sends requests whose lines of the log exceed the buffer.
func (p *piped) flood(requests int) {
	p.t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for range requests / 8 {
				res, err := client.Get(p.url + "/livez")
				if err != nil {
					p.t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
	senders.Wait()
}

func TestServe_AReaderOfTheLogThatStandsStillStopsNoRequest(t *testing.T) {
	locktest.Slow(t, processes)
	p := startPipedServer(t, "--log-level=debug")
	p.flood(320)
	if status, body := p.buy("k"); status != 201 {
		t.Fatalf("a purchase: %d %s", status, body)
	}
	p.flood(8000)
	locktest.Eventually(t, "lost lines are counted", func() bool {
		_, text := p.get(p.metrics)
		return strings.Contains(text, "\nlog_lines_lost_total ") && !strings.Contains(text, "\nlog_lines_lost_total 0\n")
	})
	log := &lines{}
	var copied sync.WaitGroup
	copied.Go(func() { _, _ = io.Copy(log, p.reader) })
	locktest.Eventually(t, "the log goes on and says what was lost", func() bool { return log.find(linesLost)["lines"] != nil })
	p.wantEnd(syscall.SIGTERM, 10*time.Second)
	copied.Wait()
	if log.find("serving") == nil || log.find("stopped: every request got its answer") == nil {
		t.Error("the first or the last line is missing")
	}
}

func TestServe_EndsWhileTheReaderOfTheLogStandsStill(t *testing.T) {
	locktest.Slow(t, processes)
	p := startPipedServer(t)
	p.flood(320)
	p.wantEnd(syscall.SIGTERM, 5*time.Second)
}

func TestServe_AReaderOfTheLogThatGoesAwayStopsNoRequest(t *testing.T) {
	locktest.Slow(t, processes)
	p := startPipedServer(t)
	must(t, p.reader.Close)
	for i := range 3 {
		if status, body := p.buy(fmt.Sprint(i)); status != 201 {
			t.Fatalf("a purchase: %d %s", status, body)
		}
	}
	locktest.Eventually(t, "lost lines are counted", func() bool {
		_, text := p.get(p.metrics)
		return strings.Contains(text, "\nlog_lines_lost_total ") && !strings.Contains(text, "\nlog_lines_lost_total 0\n")
	})
	p.wantEnd(syscall.SIGTERM, 5*time.Second)
}

func TestBatch_GoesOnAndEndsWithoutAReaderOfItsLog(t *testing.T) {
	locktest.Slow(t, processes)
	for _, closed := range []bool{false, true} {
		url, _ := newDatabase(t)
		p := startPiped(t, "", nil, "batch", "--postgres-url", url, "--lock-prefix", t.Name(), "--mongo-url=", "--every=5ms", "--log-level=debug")
		if closed {
			must(t, p.reader.Close)
		}
		for range 3 { // each is purged by a round of its own
			execute(t, url, `INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, created_at)
				VALUES (gen_random_uuid(), 'k', sha256('k'), 201, '{}', now() - interval '2 days')`)
			locktest.Eventually(t, "the next round", func() bool { return query(t, url, `SELECT count(*) FROM idempotency_keys`) == 0 })
		}
		p.wantEnd(syscall.SIGTERM, 5*time.Second)
	}
}

// A terminal that closes sends SIGHUP twice: the shell does, and then the kernel.
func TestServe_HangUpEndsItAsTermDoes(t *testing.T) {
	locktest.Slow(t, processes)
	url, keys := newDatabase(t)
	cmd, ended, r := startProcess(t, url, keys["alice"], "inventory/before-acquire=sleep:2s", "--drain-delay=100ms", "--request-timeout=1m", "--shutdown-timeout=1m", "--metrics-listen=127.0.0.1:0")
	answered := make(chan int, 1)
	go func() {
		status, _ := r.buy("k")
		answered <- status
	}()
	locktest.Eventually(t, "a request in flight", func() bool {
		_, text := r.get(r.metrics)
		return strings.Contains(text, "\nhttp_requests_in_flight 1\n")
	})
	must(t, func() error { return cmd.Process.Signal(syscall.SIGHUP) })
	locktest.Eventually(t, "draining", func() bool { return r.log.find("draining") != nil || len(ended) > 0 })
	_ = cmd.Process.Signal(syscall.SIGHUP)
	if status := <-answered; status != 201 {
		t.Errorf("the request in flight was answered %d", status)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, r.log)
	}
}

// nohup starts a program with SIGHUP ignored.
func TestServe_HangUpThatNohupIgnoresStaysIgnored(t *testing.T) {
	locktest.Slow(t, processes)
	url, _ := newDatabase(t)
	address := freeAddress(t)
	p := startPiped(t, "", []string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`},
		"serve", "--strategy=row", "--listen", address, "--metrics-listen=", "--postgres-url", url)
	p.url = "http://" + address
	locktest.Eventually(t, "serving", p.alive)
	must(t, func() error { return p.cmd.Process.Signal(syscall.SIGHUP) })
	for range 20 {
		if !p.alive() {
			t.Fatal("SIGHUP ended it")
		}
	}
	p.wantEnd(syscall.SIGTERM, 5*time.Second)
}

// What a start that fails has to say is written before the program ends.
func TestMain_AnErrorOfTheStartIsWritten(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "serve", "--postgres-url=postgres://[")
	cmd.Env = append(os.Environ(), asShop+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	must(t, cmd.Start)
	text, _ := bufio.NewReader(stderr).ReadString('\n')
	_, _ = io.Copy(io.Discard, stderr)
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 2 || !strings.HasPrefix(text, "shop: ") {
		t.Errorf("%v: %s", cmd.ProcessState, text)
	}
}

func must(t *testing.T, what func() error) {
	t.Helper()
	if err := what(); err != nil {
		t.Fatal(err)
	}
}
