package nemesis

import "github.com/Shopify/toxiproxy/v2/toxics"

// Loss is a direction of a link that loses what is sent, until it heals.
type Loss struct {
	added []toxics.Toxic
	undo  func() error
}

// Lose cuts a direction of a link.
func (l *Link) Lose(d Direction) (*Loss, error) {
	added, undo, err := l.do(toxic{kind: silenceType, direction: d, attributes: struct{}{}})
	return &Loss{added, undo}, err
}

// Chunks of data have been lost.
func (l *Loss) Chunks() int64 { return hits(l.added, false) }

// Connections have stood on the link while it was cut.
func (l *Loss) Connections() (n int64) {
	for _, t := range l.added {
		if s, is := t.(*silence); is {
			n += s.streams.Load()
		}
	}
	return n
}

// Heal lets new connections through. Those in whose stream something may be missing are closed.
func (l *Loss) Heal() error { return l.undo() }
