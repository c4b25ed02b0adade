package combine

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"shop/locking"
)

// BenchmarkDo_Waiting reports the memory of a request that waits: that of the queue, and that of a goroutine with its
// stack, which a client that calls Do has anyway.
func BenchmarkDo_Waiting(b *testing.B) {
	const requests = 4096 // the default of MaxQueue
	var queue, stacks float64
	for b.Loop() {
		began, end := make(chan struct{}, 1), make(chan struct{})
		c := open(b, Config[string, string]{MaxBatch: requests, Apply: func(_ context.Context, _ locking.Lease, batch []string) ([]Result[string], error) {
			began <- struct{}{}
			<-end
			return make([]Result[string], len(batch)), nil
		}})
		var clients sync.WaitGroup
		ask := func() {
			clients.Go(func() {
				if _, err := c.Do(b.Context(), "q", "k"); err != nil {
					b.Error(err)
				}
			})
		}
		ask()
		<-began
		before := inUse()
		for range requests {
			ask()
		}
		for c.Queued() < requests {
			runtime.Gosched()
		}
		after := inUse()
		queue += float64(after.HeapAlloc-before.HeapAlloc) / requests
		stacks += float64(after.StackInuse-before.StackInuse) / requests
		close(end)
		clients.Wait()
	}
	b.ReportMetric(queue/float64(b.N), "heap-B/request")
	b.ReportMetric(stacks/float64(b.N), "stack-B/request")
}

func inUse() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
