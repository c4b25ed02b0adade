// SPDX-License-Identifier: MIT

package stack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shop/locking/servertest/daemon"
)

// Goal: a port that is taken between FreePorts and the start costs one retry.
// Method: the first pick includes a port on which the test listens.

func taken(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// supervised is a supervisor in this process.
func supervised(t *testing.T, pick func(int) ([]int, error)) *supervisor {
	t.Helper()
	dir, lock, err := newFolder(folderPrefix)
	if err != nil {
		t.Fatal(err)
	}
	s := &supervisor{dir: dir, pick: pick}
	t.Cleanup(func() {
		if err := daemon.Destroy(s.servers); err != nil {
			t.Error(err)
		}
		if err := errors.Join(lock.Close(), reap(dir)); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestOpen_ATakenPortIsTriedAgainWithAnother(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			lost := taken(t)
			picks := 0
			s := supervised(t, func(n int) ([]int, error) {
				ports, err := daemon.FreePorts(n)
				if picks++; picks == 1 {
					ports[0] = lost
				}
				return ports, err
			})
			programs, err := provide(t.Context(), []string{kind}, os.Stderr)
			if err != nil {
				t.Fatal(err)
			}
			servers, err := s.open(t.Context(), request{Op: "open", Kind: kind, Name: kind, Program: programs[kind]})
			if err != nil {
				t.Fatal(err)
			}
			if picks < 2 || strings.HasSuffix(servers[0].Addr, fmt.Sprint(":", lost)) {
				t.Fatalf("%d picks, address %s", picks, servers[0].Addr)
			}
		})
	}
}

func TestOpen_GivesUpWhenEveryPortIsTaken(t *testing.T) {
	lost := taken(t)
	s := supervised(t, func(int) ([]int, error) { return []int{lost}, nil })
	programs, err := provide(t.Context(), []string{"redis"}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.open(t.Context(), request{Op: "open", Kind: "redis", Name: "redis", Program: programs["redis"]})
	if !errors.Is(err, daemon.ErrPortTaken) || !strings.Contains(err.Error(), "stop the processes that take ports") {
		t.Fatalf("open: %v, want ErrPortTaken and what to do", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "redis*")); len(left) > 0 || len(readJournal(s.dir).Servers) > 0 {
		t.Fatalf("a failed start left %v and %v", left, readJournal(s.dir).Servers)
	}
}

func TestFreePorts_LieBelowThoseOfOutgoingConnections(t *testing.T) {
	ports, err := daemon.FreePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		if port < daemon.PortMin || port >= daemon.PortMax || seen[port] {
			t.Fatalf("%v", ports)
		}
		seen[port] = true
	}
}
