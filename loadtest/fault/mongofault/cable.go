package mongofault

import (
	"slices"
	"sync"
)

// cable is one connection on a Wire.
type cable struct {
	wire *Wire

	mu      sync.Mutex
	waiting map[uint32]statement // for their answer, by the message's id
}

// moreToCome is the flag of a message that gets no answer.
const moreToCome = 1 << 1

// request heeds what the client says.
func (c *cable) request(m message) (pass, on bool) {
	s, ok := understand(m.body())
	if !ok {
		return true, true
	}
	c.wire.ear.hear(s)
	if m[headLength]&moreToCome == 0 {
		c.mu.Lock()
		c.waiting[m.id()] = s
		c.mu.Unlock()
	}
	return true, true
}

// answer heeds what the server says. An answer that is swallowed is that to a
// commit which was done.
func (c *cable) answer(m message) (pass, on bool) {
	c.mu.Lock()
	s, ok := c.waiting[m.answers()]
	delete(c.waiting, m.answers())
	c.mu.Unlock()
	if !ok {
		return true, true
	}
	answer := m.body()
	code, _ := refusalOf(answer)
	_, unsure := answer.Lookup("writeConcernError").DocumentOK()
	switch {
	case code != 0:
		c.wire.ear.refused(s, code)
		return true, !slices.Contains(noPrimary, code)
	case s.command != commit:
	case unsure:
		c.wire.failed.Add(1)
	case c.wire.toCut():
		c.wire.cut.Add(1)
		return false, false
	}
	return true, true
}

// noPrimary are the codes of a server that is none any more: NotWritablePrimary,
// PrimarySteppedDown, InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk.
var noPrimary = []int64{10107, 189, 11602, 13435}

// toCut takes one of the cuts that were ordered.
func (w *Wire) toCut() bool {
	for n := w.cuts.Load(); n > 0; n = w.cuts.Load() {
		if w.cuts.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}
