package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// The supervisor's roster: who belongs to the stack. It is written to the
// journal at each change.

// portTries: how often a first start is tried when its ports are taken meanwhile.
const portTries = 5

// open starts a server and answers with its members. It is in the journal
// before its first process exists. When a port is lost to someone, all is done
// anew with other ports: members know each other by them.
func (s *supervisor) open(ctx context.Context, req request) ([]Server, error) {
	k, err := kindOf(req.Kind)
	if err == nil {
		err = k.checkFiles()
	}
	if err != nil {
		return nil, err
	}
	name := s.nameOf(req)
	for range portTries {
		members, err := newCluster(s.dir, name, req.Program, k, s.pick)
		if err != nil {
			return nil, err
		}
		if err = s.track(members); err == nil {
			err = raise(ctx, members)
		}
		if err == nil {
			return publish(members), s.track(nil)
		}
		err = errors.Join(err, s.drop(members))
		if !errors.Is(err, errPortTaken) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w, %d times: stop what takes ports between %d and %d", errPortTaken, portTries, portMin, portMax)
}

func (s *supervisor) nameOf(req request) string {
	if req.Name != "" {
		return req.Name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.private++
	return fmt.Sprintf("%s-private-%d", req.Kind, s.private)
}

// track enters members into the journal; without any it writes what has changed.
func (s *supervisor) track(members []*instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = append(s.servers, members...)
	return s.save()
}

// drop is the end of servers that did not start.
func (s *supervisor) drop(members []*instance) error {
	err := raze(members)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = slices.DeleteFunc(s.servers, func(i *instance) bool { return slices.Contains(members, i) })
	return errors.Join(err, s.save())
}

func publish(members []*instance) []Server {
	var public []Server
	for _, m := range members {
		public = append(public, m.public())
	}
	return public
}

func (s *supervisor) list() []Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return publish(s.servers)
}

func (s *supervisor) find(name string) (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := slices.IndexFunc(s.servers, func(i *instance) bool { return i.Name == name })
	if n < 0 {
		return nil, fmt.Errorf("this stack has no server called %q: its address was set from outside, or it was not asked for", name)
	}
	return s.servers[n], nil
}

// adopt notes a process. It must be alive and be who the client says.
func (s *supervisor) adopt(a adoptee) error {
	now, err := identify(a.Process.PID)
	if err != nil {
		return err
	}
	if now != a.Process {
		return fmt.Errorf("pid %d: %w", a.Process.PID, errStranger)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adopted = slices.DeleteFunc(s.adopted, func(a adoptee) bool { return !a.Group && !a.Process.alive() })
	s.adopted = append(s.adopted, a)
	return s.save()
}
