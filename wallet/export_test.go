package wallet

// Queued returns how many operations wait for a batch.
func (s *Service) Queued() int { return s.together.Queued() }
