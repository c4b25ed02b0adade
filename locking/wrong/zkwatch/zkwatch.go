// SPDX-License-Identifier: MIT

// Package zkwatch is a lock over ZooKeeper with two mistakes of published examples. It exists to fail its tests.
//
// The recipe is right: each request creates an ephemeral sequential node, the first one of the queue holds the lock, and
// each other one watches the node before its own. The examples sort the nodes by their full names. A name that begins with
// something else than the number, as those of CreateProtectedEphemeralSequential do, is then in any place of the queue: a
// later node may be before the holder's. And they do not look whether the node before is still there when the watch is
// set. If it was deleted after the list was read, the watch waits for a node that never comes.
//
// The correct store is zklock.
package zkwatch

import (
	"context"
	"slices"

	"github.com/go-zookeeper/zk"
)

// Lock is a queue of nodes below Path, which exists.
type Lock struct {
	Conn *zk.Conn
	Path string
	// Listed is called after the list of nodes was read, and Watched when a watch is set; nil: nothing.
	Listed, Watched func()
}

// Acquire waits until the node that it creates, with a name that begins with this prefix, is the first.
func (l Lock) Acquire(ctx context.Context, prefix string) (node string, err error) {
	path, err := l.Conn.Create(l.Path+"/"+prefix+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return "", err
	}
	node = path[len(l.Path)+1:]
	for {
		nodes, _, err := l.Conn.Children(l.Path)
		if err != nil {
			return "", err
		}
		slices.Sort(nodes) // the first mistake: by names, not by numbers
		before := slices.Index(nodes, node) - 1
		if before < 0 {
			return node, nil
		}
		if l.Listed != nil {
			l.Listed()
		}
		_, _, deleted, err := l.Conn.ExistsW(l.Path + "/" + nodes[before]) // the second: it may be gone
		if err != nil {
			return "", err
		}
		if l.Watched != nil {
			l.Watched()
		}
		select {
		case <-deleted:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// Release deletes the node.
func (l Lock) Release(node string) error { return l.Conn.Delete(l.Path+"/"+node, -1) }
