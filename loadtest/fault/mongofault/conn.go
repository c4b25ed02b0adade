package mongofault

import (
	"slices"
	"sync"
)

// conn is one connection through a Proxy.
type conn struct {
	proxy *Proxy

	mu      sync.Mutex
	waiting map[uint32]statement // for their answer, by the message's id
}

// moreToCome is the flag of a message that gets no answer.
const moreToCome = 1 << 1

// request handles what the client says.
func (c *conn) request(m message) (pass, on bool) {
	s, ok := understand(m.body())
	if !ok {
		return true, true
	}
	c.proxy.recorder.record(s)
	if m[headLength]&moreToCome == 0 {
		c.mu.Lock()
		c.waiting[m.id()] = s
		c.mu.Unlock()
	}
	return true, true
}

// answer handles what the server says. An answer that is swallowed is that to a
// commit which was done.
func (c *conn) answer(m message) (pass, on bool) {
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
		c.proxy.recorder.refused(s, code)
		return true, !slices.Contains(noPrimary, code)
	case s.command != commit:
	case unsure:
		c.proxy.failed.Add(1)
	case c.proxy.toCut():
		c.proxy.cut.Add(1)
		return false, false
	}
	return true, true
}

// noPrimary are the codes of a server that is none any more: NotWritablePrimary,
// PrimarySteppedDown, InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk.
var noPrimary = []int64{10107, 189, 11602, 13435}

// toCut takes one of the cuts that were ordered.
func (w *Proxy) toCut() bool {
	for n := w.cuts.Load(); n > 0; n = w.cuts.Load() {
		if w.cuts.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}
