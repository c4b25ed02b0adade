package wallet

import (
	"time"

	"github.com/google/uuid"
)

// Contend makes the Service remember that another process has had the wallet lately, for as long as a test takes.
func (s *Service) Contend(id uuid.UUID) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	s.queues.runs[id] = &run{since: time.Now(), lost: time.Now().Add(time.Hour), operations: 1}
}
