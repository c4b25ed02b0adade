package idempotency

// Again is the same reply, to a request that repeats another.
func (r Reply) Again() Reply {
	r.Replayed = true
	return r
}
