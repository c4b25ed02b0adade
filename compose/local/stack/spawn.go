package stack

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawn starts a command from one thread that lives as long as this process.
// PR_SET_PDEATHSIG fires when the *thread* that forked ends, not the process:
// started from any goroutine, a server could be killed because an idle thread
// went away.
func spawn(cmd *exec.Cmd) error {
	started := make(chan error)
	forks() <- func() { started <- cmd.Start() }
	return <-started
}

// Spawn is spawn for a child that must not outlive this process where the
// system can promise that (Linux): the child gets SIGKILL when we are gone.
func Spawn(cmd *exec.Cmd) error {
	dieWith(cmd, killSignal)
	return spawn(cmd)
}

var forks = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go serveForks(work)
	return work
})

func serveForks(work <-chan func()) {
	runtime.LockOSThread() // never unlocked
	for f := range work {
		f()
	}
}
