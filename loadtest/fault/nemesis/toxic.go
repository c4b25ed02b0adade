// SPDX-License-Identifier: MIT

package nemesis

import (
	"sync/atomic"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// The names under which the toxics of this package are registered with toxiproxy.
const (
	silenceType = "silence"
	meterType   = "meter"
)

func init() {
	toxics.Register(silenceType, new(silence))
	toxics.Register(meterType, new(meter))
}

// silence drops all data, and counts it. Unlike the toxic timeout it does not pass on the end
// of a connection: the receiver does not learn that its peer is gone.
type silence struct{ dropped, streams atomic.Int64 }

// Pipe drops data until the toxic is removed.
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

// Cleanup closes the connection, since data is missing from its stream. It reads what still comes
// in, or the writer would block for ever.
func (s *silence) Cleanup(stub *toxics.ToxicStub) {
	stub.Close()
	go func() {
		for range stub.Input {
			s.dropped.Add(1)
		}
	}()
}

// meter passes all data on, and counts it.
type meter struct{ passed, closed atomic.Int64 }

// Pipe counts until the toxic is removed, or the connection ends.
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
