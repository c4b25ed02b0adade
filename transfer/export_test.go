package transfer

// Queued returns how many transfers wait for a batch.
func (s *Service) Queued() int { return s.together.Queued() }
