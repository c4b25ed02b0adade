package nemesis

import (
	"sync/atomic"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// The toxics of this package, by the names under which toxiproxy knows them.
const (
	silenceType = "silence"
	meterType   = "meter"
)

func init() {
	toxics.Register(silenceType, new(silence))
	toxics.Register(meterType, new(meter))
}

// silence drops what it is given, and counts it. Unlike the toxic timeout it keeps the end
// of the connection to itself: what is behind it does not learn that its peer has gone.
type silence struct{ dropped, streams atomic.Int64 }

// Pipe drops until it is removed.
func (s *silence) Pipe(stub *toxics.ToxicStub) {
	s.streams.Add(1)
	input := stub.Input
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk, open := <-input:
			if !open || chunk == nil {
				input = nil
				continue
			}
			s.dropped.Add(1)
		}
	}
}

// Cleanup closes the connection, in whose stream something is missing. What still comes in
// must be read, or its writer waits for ever.
func (s *silence) Cleanup(stub *toxics.ToxicStub) {
	stub.Close()
	go func() {
		for range stub.Input {
			s.dropped.Add(1)
		}
	}()
}

// meter passes everything on, and counts it.
type meter struct{ passed, closed atomic.Int64 }

// Pipe counts until it is removed, or the connection ends.
func (m *meter) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				m.closed.Add(1)
				stub.Close()
				return
			}
			m.passed.Add(1)
			stub.Output <- chunk
		}
	}
}
