// SPDX-License-Identifier: MIT

package daemon

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

// NewCluster gives the members of one server names, ports and a common secret. Their folders will be in dir.
func NewCluster(dir, name, program string, k *Kind, pick func(int) ([]int, error)) ([]*Instance, error) {
	runAs, err := serverUser(k.Users)
	if err != nil {
		return nil, err
	}
	count, each := max(k.Members, 1), max(k.Ports, 1)
	ports, err := pick(count * each)
	if err != nil {
		return nil, err
	}
	members := make([]*Instance, count)
	secret := rand.Text()
	for n := range members {
		member := name
		if count > 1 {
			member = fmt.Sprintf("%s-%d", name, n+1)
		}
		members[n] = &Instance{
			Record: Record{
				Name: member, Kind: k.Name, Program: program, Dir: filepath.Join(dir, member),
				Ports: ports[n*each : (n+1)*each], Secret: secret, State: Down,
			},
			Cluster: members, kind: k, user: runAs,
		}
	}
	return members, nil
}

// StartAll starts the members concurrently, because a member may not become ready without
// the others.
func StartAll(ctx context.Context, members []*Instance) error {
	group, all := errgroup.WithContext(ctx)
	for _, m := range members {
		group.Go(func() error {
			m.op.Lock()
			defer m.op.Unlock()
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
	if join := members[0].kind.Join; join != nil {
		if err := join(ctx, members[0]); err != nil {
			return err
		}
	}
	for _, m := range members {
		m.expect(true)
	}
	return nil
}

// Destroy ends the members and removes their folders. It does not begin with
// SIGKILL, because a server killed during its start may not have recorded yet what
// it holds outside its folder.
func Destroy(members []*Instance) error {
	var errs []error
	for _, m := range members {
		errs = append(errs, m.Snapshot().End(m.kind), m.Kill(), os.RemoveAll(m.Dir), os.RemoveAll(m.logFile()))
	}
	return errors.Join(errs...)
}

// scrub removes what a killed server leaves outside its folder. It retries, because a
// killed process may release it a moment after its end.
func (k *Kind) scrub(r Record) error {
	if k.Scrub == nil {
		return nil
	}
	return Poll(10*time.Second, func() error { return k.Scrub(r) })
}

// Until repeats do until it succeeds. It returns the last error if ctx ends first.
func Until(ctx context.Context, do func() error) error {
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
const PortMin, PortMax = 20000, 32000

// FreePorts picks n random ports that are free now. Another process may take one
// before the server does; the caller then tries again with other ports.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range 50 * n {
		port := PortMin + mathrand.IntN(PortMax-PortMin)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // held until all are found, so that no port is picked twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free port on 127.0.0.1 between 20000 and 32000: stop what listens there")
}
