// SPDX-License-Identifier: MIT

package combine

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"shop/locking"
)

// BenchmarkDo_Waiting reports the memory of a request that waits: what the queue has for it, and the goroutine of the
// client with its stack, which a server has for each request anyway. -benchtime 1x measures the goroutines as new ones.
func BenchmarkDo_Waiting(b *testing.B) {
	const requests = 4096 // the default of MaxQueue
	var queue, goroutines float64
	for b.Loop() {
		began, end := make(chan struct{}), make(chan struct{})
		c := open(b, Config[string, string]{MaxBatch: requests, Apply: func(_ context.Context, _ locking.Lease, batch []string) ([]Result[string], error) {
			if len(batch) == 1 {
				close(began)
				<-end
			}
			return make([]Result[string], len(batch)), nil
		}})
		var clients, ready sync.WaitGroup
		start := make(chan struct{})
		ask := func(q string) {
			if _, err := c.Do(b.Context(), q, "k"); err != nil {
				b.Error(err)
			}
		}
		clients.Go(func() { ask("first") })
		<-began
		empty := inUse()
		ready.Add(requests)
		for range requests {
			clients.Go(func() {
				ready.Done()
				<-start
				ask("waiting")
			})
		}
		ready.Wait()
		before := inUse()
		close(start)
		for c.Queued() < requests {
			runtime.Gosched()
		}
		after := inUse()
		queue += float64(after.HeapAlloc-before.HeapAlloc) / requests
		goroutines += float64(before.HeapAlloc-empty.HeapAlloc+after.StackInuse-empty.StackInuse) / requests
		close(end)
		clients.Wait()
	}
	b.ReportMetric(queue/float64(b.N), "queue-B/request")
	b.ReportMetric(goroutines/float64(b.N), "goroutine-B/request")
}

func inUse() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
