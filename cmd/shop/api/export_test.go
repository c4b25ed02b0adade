package api

import "time"

// SetKeyClock gives the keyring another clock, before the first request.
func (s *Server) SetKeyClock(now func() time.Time) { s.keyring.now = now }

// LookupsMax bounds the lookups of keys that were never valid here.
const LookupsMax = lookupsMax

// Reading counts the bodies that are being read.
func (s *Server) Reading() int {
	s.reading.mu.Lock()
	defer s.reading.mu.Unlock()
	return len(s.reading.conns)
}

// UnknownKeysLeft returns how many lookups of unknown keys an address has left; if negative, it must wait.
func (s *Server) UnknownKeysLeft(remote string) float64 {
	return s.keyring.failures.bucket(network(remote)).Tokens()
}
