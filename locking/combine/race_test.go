//go:build race

package combine

// someSchedules is how many schedules TestSchedules runs. The race detector makes each ten times as expensive:
// TestSchedules_NoticeMutants runs ten thousand without it.
const someSchedules = 1000
