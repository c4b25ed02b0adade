package loadtest

import (
	"cmp"
	"slices"
	"time"
)

// Overlaps counts the attempts that were under way for a product or an
// account while another replica was busy with an attempt for the same one. A run without any
// shows nothing: the requests might as well have come one by one. With a single
// replica in view (a load balancer's address), any two attempts count.
func Overlaps(records []Record, replicas int) int64 {
	type span struct {
		attempt int // an attempt for two counts once
		replica int
		start   time.Duration
		end     time.Duration
	}
	byName := map[string][]span{}
	n := 0
	for _, r := range records {
		for _, a := range r.Attempts {
			n++
			if a.Sends == 0 {
				continue // it never got to a replica
			}
			for _, name := range r.Contends {
				byName[name] = append(byName[name], span{n, a.Replica, a.Start, a.End})
			}
		}
	}
	met := map[int]bool{}
	for _, spans := range byName {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
		var open []span
		for _, s := range spans {
			open = slices.DeleteFunc(open, func(o span) bool { return o.end <= s.start })
			for _, o := range open {
				if o.replica != s.replica || replicas == 1 {
					met[o.attempt], met[s.attempt] = true, true
				}
			}
			open = append(open, s)
		}
	}
	return int64(len(met))
}
