package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// newCluster gives the members of one server names, ports and a common secret.
func newCluster(dir, name, program string, k *kind, pick func(int) ([]int, error)) ([]*instance, error) {
	who, err := lesser(k.users)
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
			kind: k, cluster: members, user: who,
		}
	}
	return members, nil
}

// raise starts the members side by side: none may be ready without the others.
func raise(ctx context.Context, members []*instance) error {
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

// raze undoes raise, gently: a server killed in the middle of its start may not
// have noted yet what it has outside its folder.
func raze(members []*instance) error {
	var errs []error
	for _, m := range members {
		errs = append(errs, m.now().end(), m.kill(), os.RemoveAll(m.Dir), os.RemoveAll(m.logFile()))
	}
	return errors.Join(errs...)
}

// scrub removes what a killed server leaves outside its folder.
func scrub(r record) {
	if k := kinds[r.Kind]; k != nil && k.scrub != nil {
		k.scrub(r)
	}
}
