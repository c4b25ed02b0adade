// SPDX-License-Identifier: MIT

package wrong

import (
	"testing"
	"time"

	"shop/locking/locktest"
)

// One goroutine's lock expires, and another one of the process gets it. The first one releases.
func TestProcess_OneOwnerLetsAThirdIn(t *testing.T) {
	t.Parallel()
	key, server := newKey(t), connect(t, "")
	short, long := Process{server, "host-1", time.Millisecond}, Process{server, "host-1", time.Minute}
	if !must[bool](t)(short.Acquire(t.Context(), key)) {
		t.Fatal("the first goroutine did not get the key")
	}
	locktest.Eventually(t, "the second goroutine has the key", func() bool { return must[bool](t)(long.Acquire(t.Context(), key)) })
	if !must[bool](t)(short.Release(t.Context(), key)) {
		t.Error("the release was refused")
	}
	if other := (Process{server, "host-2", time.Minute}); !must[bool](t)(other.Acquire(t.Context(), key)) {
		t.Error("another process did not get the key, which the second goroutine holds")
	}
}

// The control: the same script, with an owner for each grant.
func TestProcess_AnOwnerForEachGrantKeepsTheKey(t *testing.T) {
	t.Parallel()
	key, server := newKey(t), connect(t, "")
	short, long := Process{server, "first", time.Millisecond}, Process{server, "second", time.Minute}
	must[bool](t)(short.Acquire(t.Context(), key))
	locktest.Eventually(t, "the second goroutine has the key", func() bool { return must[bool](t)(long.Acquire(t.Context(), key)) })
	if must[bool](t)(short.Release(t.Context(), key)) {
		t.Error("the first goroutine released the key of the second")
	}
	wantHolder(t, key, "second")
}

// The work takes longer than its lease.
func TestWithLease_GoesOnWithoutTheLock(t *testing.T) {
	t.Parallel()
	key, server, second := newKey(t), connect(t, ""), false
	_, err := WithLease(t.Context(), server, key, "A", time.Millisecond, func() {
		locktest.Eventually(t, "B has the key during the work of A", func() bool {
			second = must[bool](t)(server.SetNX(t.Context(), key, "B", time.Minute).Result())
			return second
		})
	})
	if err != nil || !second {
		t.Errorf("%v, B got the key: %v", err, second)
	}
}

func TestJobOnce_RunsAgainAfterItsEnd(t *testing.T) {
	t.Parallel()
	job, server, runs := newKey(t), connect(t, ""), 0
	for range 2 { // two servers with the same schedule, one of them a second late
		must[bool](t)(JobOnce(t.Context(), server, job, func() { runs++ }))
	}
	if runs != 2 {
		t.Errorf("the job ran %d times, want 2", runs)
	}
	nested := true
	must[bool](t)(JobOnce(t.Context(), server, job, func() {
		nested = must[bool](t)(JobOnce(t.Context(), server, job, func() {}))
	}))
	if nested {
		t.Error("it ran while it was running: the flag does nothing at all")
	}
}
