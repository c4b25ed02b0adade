package fault

import "context"

// Victims are the replicas of a service, by number from 0.
type Victims interface {
	Len() int
	Kill(ctx context.Context, n int) error                   // SIGKILL: no goodbye, no flushing
	Start(ctx context.Context, n int, extra ...string) error // on the same address, with extra arguments; returns when it answers
}

// Pausable are replicas that can be stopped and let go on.
type Pausable interface {
	Pause(n int) error  // SIGSTOP: connections stay open, nothing answers
	Resume(n int) error // also of one that is not paused
}

// Mortal are replicas that may end by themselves.
type Mortal interface {
	Ended(n int) <-chan struct{} // closed when the one that was started last has ended
}

// Server is one that can be killed and started again with its address and data.
type Server interface {
	Kill(ctx context.Context) error
	Start(ctx context.Context) error // returns when it answers
}

// Freezer is a server that can stand still: its connections stay open, and
// nothing answers.
type Freezer interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}
