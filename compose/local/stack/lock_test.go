package stack_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A folder whose lock is free is taken for a dead stack's and buried by the next
// one that starts. So the lock must outlive the supervisor's garbage collector,
// which closes a file that nobody holds any more.
func TestLock_IsHeldAsLongAsTheSupervisorLives(t *testing.T) {
	t.Setenv("GOGC", "1") // the supervisor collects all the time
	s := open(t, "redis")
	redis := server(t, s, "redis")
	for range 12 { // each lists all processes: garbage
		must(t, "pause", redis.Pause(t.Context()))
		must(t, "resume", redis.Resume(t.Context()))
	}
	f, err := os.Open(filepath.Join(s.Dir(), "lock"))
	must(t, "open the lock", err)
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Fatalf("the lock of a living stack is free: %v", err)
	}
}
