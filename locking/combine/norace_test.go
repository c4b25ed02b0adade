//go:build !race

package combine

// someSchedules is how many schedules TestSchedules runs.
const someSchedules = 10_000
