package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options say what Open starts.
type Options struct {
	Servers  []string  // kinds; none is a stack without servers, for Private and Adopt
	Detached bool      // it goes on when this process is gone, until End
	Log      io.Writer // progress, for a person; nil: none
}

// Open finds or installs the servers, starts them side by side, and returns
// when each has answered a query. Unless detached, the stack ends with this
// process, however this process ends.
func Open(ctx context.Context, o Options) (*Stack, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	Sweep()
	programs, err := provide(ctx, o.Servers, o.Log)
	if err != nil {
		return nil, err
	}
	s, err := begin(o.Detached)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range o.Servers {
		group.Go(func() error {
			_, err := s.openProgram(ctx, name, name, programs[name])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) open(ctx context.Context, kind, name string) ([]*Server, error) {
	programs, err := provide(ctx, []string{kind}, io.Discard)
	if err != nil {
		return nil, err
	}
	return s.openProgram(ctx, kind, name, programs[kind])
}

func (s *Stack) openProgram(ctx context.Context, kind, name, program string) ([]*Server, error) {
	opened, err := call(ctx, s.dir, request{Op: "open", Kind: kind, Name: name, Program: program})
	return s.handles(opened), err
}

// begin makes the folder and starts the supervisor in it.
func begin(detached bool) (*Stack, error) {
	prefix := folderPrefix
	if detached {
		prefix = detachedPrefix
	}
	dir, lock, err := newFolder(prefix)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the supervisor has it from now on
	report, reportEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &Stack{dir: dir, done: make(chan struct{})}
	files, args := []*os.File{reportEnd, lock}, []string{dir}
	if !detached {
		end, lifeline, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer end.Close()
		s.lifeline = lifeline
		files, args = append(files, end), append(args, "attached")
	}
	if err := role(roleLauncher, files, args...).Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("stack: launcher: %w: %s", err, roleLogs(dir)), os.RemoveAll(dir))
	}
	_ = reportEnd.Close() // ours: theirs alone hold the pipe open now
	if err := s.awaitReport(report); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// awaitReport waits for the supervisor's one line, and leaves someone behind who
// waits for the end: each of its heirs holds the pipe open, and none writes.
func (s *Stack) awaitReport(report *os.File) error {
	_ = report.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(report).ReadString('\n')
	if err != nil {
		err = fmt.Errorf("stack: the supervisor has not started: %q %w: %s", line, err, roleLogs(s.dir))
	}
	go func() {
		_ = report.SetReadDeadline(time.Time{})
		_, _ = report.Read(make([]byte, 1))
		_ = report.Close()
		close(s.done)
	}()
	return err
}

// openLog is where a role's last words go.
func openLog(dir, role string) *os.File {
	f, err := os.OpenFile(filepath.Join(dir, role+".err"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil
	}
	return f
}

func roleLogs(dir string) string {
	var all strings.Builder
	for _, name := range []string{roleLauncher, roleSupervisor, roleUndertaker} {
		content, _ := os.ReadFile(filepath.Join(dir, name+".err"))
		all.Write(content)
	}
	return strings.TrimSpace(all.String())
}
