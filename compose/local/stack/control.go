// SPDX-License-Identifier: MIT

package stack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"shop/locking/servertest/daemon"
)

// request is the JSON that a client sends to the supervisor, one per connection.
// A client that disconnects before the reply cancels its request.
type request struct {
	Op      string         // see supervisor.do
	Name    string         // the server
	Kind    string         // open: the kind to start under that name; Name is empty for a private server
	Program string         // open: its path
	Process daemon.Process // adopt
}

type reply struct {
	Error   string
	Servers []Server
}

func socketOf(dir string) string { return filepath.Join(dir, "control") }

// call sends a request to the supervisor of the stack in dir.
func call(ctx context.Context, dir string, req request) ([]Server, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socketOf(dir))
	if err != nil {
		return nil, fmt.Errorf("stack: no local stack runs in %s: %w", dir, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return nil, fmt.Errorf("stack: %s: %w", req.Op, errors.Join(context.Cause(ctx), err))
	}
	var rep reply
	if err := json.NewDecoder(conn).Decode(&rep); err != nil {
		return nil, fmt.Errorf("stack: %s %s: no reply from the supervisor: %w", req.Op, req.Name, errors.Join(context.Cause(ctx), err))
	}
	if rep.Error != "" {
		return nil, fmt.Errorf("stack: %s %s: %s", req.Op, cmp.Or(req.Name, req.Kind), rep.Error)
	}
	return rep.Servers, nil
}

// serve answers one connection.
func serve(conn net.Conn, do func(context.Context, request) ([]Server, error)) {
	defer conn.Close()
	decoder := json.NewDecoder(conn)
	var req request
	if decoder.Decode(&req) != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() { // the client sends nothing more: Read returns when it disconnects
		_, _ = conn.Read(make([]byte, 1))
		cancel(errors.New("the client has disconnected"))
	}()
	servers, err := do(ctx, req)
	rep := reply{Servers: servers}
	if err != nil {
		rep.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(rep)
}
