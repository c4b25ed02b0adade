// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// newCluster gives the members of one server names, ports and a common secret.
func newCluster(dir, name, program string, k *kind, pick func(int) ([]int, error)) ([]*instance, error) {
	runAs, err := serverUser(k.users)
	if err != nil {
		return nil, err
	}
	ports, err := pick(k.members * k.ports)
	if err != nil {
		return nil, err
	}
	members := make([]*instance, k.members)
	secret := rand.Text()
	for n := range members {
		member := name
		if len(members) > 1 {
			member = fmt.Sprintf("%s-%d", name, n+1)
		}
		members[n] = &instance{
			record: record{
				Name: member, Kind: k.name, Program: program, Dir: filepath.Join(dir, member),
				Ports: ports[n*k.ports : (n+1)*k.ports], Secret: secret, State: Down,
			},
			kind: k, cluster: members, user: runAs,
		}
	}
	return members, nil
}

// startAll starts the members concurrently, because a member may not become ready without
// the others.
func startAll(ctx context.Context, members []*instance) error {
	group, all := errgroup.WithContext(ctx)
	for _, m := range members {
		group.Go(func() error {
			if err := m.make(all); err != nil {
				return err
			}
			if err := m.launch(); err != nil {
				return err
			}
			return m.awaitReady(all)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if join := members[0].kind.join; join != nil {
		if err := join(ctx, members[0]); err != nil {
			return err
		}
	}
	for _, m := range members {
		m.expect(true)
	}
	return nil
}

// destroy ends the members and removes their folders. It does not begin with
// SIGKILL, because a server killed during its start may not have recorded yet what
// it holds outside its folder.
func destroy(members []*instance) error {
	var errs []error
	for _, m := range members {
		errs = append(errs, m.snapshot().end(), m.kill(), os.RemoveAll(m.Dir), os.RemoveAll(m.logFile()))
	}
	return errors.Join(errs...)
}

// scrub removes what a killed server leaves outside its folder. It retries, because a
// killed process may release it a moment after its end.
func scrub(r record) error {
	if k := kinds[r.Kind]; k != nil && k.scrub != nil {
		return poll(10*time.Second, func() error { return k.scrub(r) })
	}
	return nil
}

// until repeats do until it succeeds. It returns the last error if ctx ends first.
func until(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last error: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Ports are picked below the ephemeral range (Linux from 32768, macOS from 49152).
// A port in that range can be lost while its server is down: a client that keeps
// dialling it is at some point given that port as its own source port, and
// connects to itself.
const portMin, portMax = 20000, 32000

// freePorts picks n random ports that are free now. Another process may take one
// before the server does; open then tries again with other ports.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 50 * n {
		port := portMin + mathrand.IntN(portMax-portMin)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // held until all are found, so that no port is picked twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("stack: no free port on 127.0.0.1 between 20000 and 32000: stop what listens there")
}
