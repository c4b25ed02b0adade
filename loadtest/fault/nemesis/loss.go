// SPDX-License-Identifier: MIT

package nemesis

import "github.com/Shopify/toxiproxy/v2/toxics"

// Loss is a cut of a direction of a link, until it heals.
type Loss struct {
	added []toxics.Toxic
	undo  func() error
}

// Lose cuts a direction of a link.
func (l *Link) Lose(d Direction) (*Loss, error) {
	added, undo, err := l.do(toxic{kind: silenceType, direction: d, attributes: struct{}{}})
	return &Loss{added, undo}, err
}

// Chunks returns how many chunks of data have been lost.
func (l *Loss) Chunks() int64 { return hits(l.added, false) }

// Connections returns how many connections were open on the link while it was cut.
func (l *Loss) Connections() (n int64) {
	for _, t := range l.added {
		if s, is := t.(*silence); is {
			n += s.streams.Load()
		}
	}
	return n
}

// Heal ends the cut. It closes the connections that may have lost data.
func (l *Loss) Heal() error { return l.undo() }
