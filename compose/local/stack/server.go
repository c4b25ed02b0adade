package stack

import "context"

// Server is one server of a stack, as a client of the stack sees it. The
// supervisor is its parent; every method asks the supervisor, and returns when
// the thing is done and not when it was ordered.
type Server struct {
	Name  string
	Kind  string
	Addr  string            // host:port
	Dir   string            // its data
	Env   map[string]string // the settings that carry its address
	PID   int               // of its first process
	State string            // when it was asked last: Running, Paused or Down
	Death string            // how it ended, and its last log lines, if no request asked for its end

	dir string
}

// Stop ends it the clean way: PostgreSQL writes its checkpoint, Redis its file.
func (s *Server) Stop(ctx context.Context) error { return s.ask(ctx, "stop") }

// Kill sends SIGKILL to all its processes, paused or not, and waits for their end.
func (s *Server) Kill(ctx context.Context) error { return s.ask(ctx, "kill") }

// Pause sends SIGSTOP to all its processes: connections stay open, nothing answers.
func (s *Server) Pause(ctx context.Context) error { return s.ask(ctx, "pause") }

// Resume ends a pause.
func (s *Server) Resume(ctx context.Context) error { return s.ask(ctx, "resume") }

// Start brings it back after Stop, Kill or its own end, with the same port and
// data, and returns when it has answered a query.
func (s *Server) Start(ctx context.Context) error { return s.ask(ctx, "start") }

func (s *Server) ask(ctx context.Context, op string) error {
	now, err := call(ctx, s.dir, request{Op: op, Name: s.Name})
	if err == nil && len(now) == 1 {
		s.PID, s.State = now[0].PID, now[0].State
	}
	return err
}

// public is what clients are told.
func (i *instance) public() Server {
	now := i.now()
	return Server{
		Name: now.Name, Kind: now.Kind, Addr: now.addr(), Dir: now.Dir, PID: now.First.PID, State: now.State, Death: i.death(),
		Env: map[string]string{
			i.kind.variable:           i.kind.url(i.cluster[0]),
			i.kind.program.variable(): now.Program,
		},
	}
}
