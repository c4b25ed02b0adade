// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/invariant"
)

// clientsMax bounds the clients of a load, which wait in one queue.
const clientsMax = 1024

// eachLoad is for all loads of a hot key: the clients, the processes that share them, and the work of each request
// inside its transaction. With -short there are few clients.
func eachLoad(measure func(clients, processes int, work time.Duration)) {
	for _, work := range []time.Duration{0, time.Millisecond} {
		for _, n := range []struct{ alone, three int }{{1, 3}, {32, 33}, {256, 255}, {clientsMax, 1023}} { // the nearest that three can divide
			if testing.Short() && n.alone > 32 {
				continue
			}
			measure(n.alone, 1, work)
			measure(n.three, 3, work)
		}
	}
}

// BenchmarkProduct lets clients buy one product.
func BenchmarkProduct(b *testing.B) {
	eachLoad(func(clients, processes int, work time.Duration) {
		strategies := []string{"combined", "row"}
		if clients == 1 && work == 0 {
			strategies = append(strategies, "redis+row")
		}
		hot(b, "product", clients, processes, work, strategies...)
	})
}

// BenchmarkMany lets clients buy one of many products.
func BenchmarkMany(b *testing.B) {
	hot(b, "many", 32, 1, 0, "combined", "redis+row")
}

// BenchmarkAccount lets clients move money between two accounts, in both directions.
func BenchmarkAccount(b *testing.B) {
	eachLoad(func(clients, processes int, work time.Duration) {
		strategies := []string{"combined", "row"}
		if clients == 1 && work == 0 {
			strategies = append(strategies, "etcd-fenced")
		}
		hot(b, "account", clients, processes, work, strategies...)
	})
}

// BenchmarkWallet lets clients credit one wallet, each with a call of a bonus service over loopback HTTP. The work is a
// pause in each call.
func BenchmarkWallet(b *testing.B) {
	eachLoad(func(clients, processes int, work time.Duration) {
		strategies := []string{"combined", "lockid"}
		if (clients == 32 || clients == 33) && work == 0 {
			strategies = append(strategies, noQueue)
		}
		hot(b, "wallet", clients, processes, work, strategies...)
	})
	hot(b, "wallet", 32, 1, 10*time.Millisecond, "combined", "lockid")
	hot(b, "wallet", 33, 3, 10*time.Millisecond, "combined", "lockid")
}

// hot measures strategies under one load, on the same objects, and compares the first with the others. Then the invariants of the flow are checked in the
// database: a fast wrong answer is no answer.
func hot(b *testing.B, flow string, clients, processes int, work time.Duration, strategies ...string) {
	b.Run(fmt.Sprintf("clients=%d/processes=%d/work=%v", clients, processes, work), func(b *testing.B) {
		p, measured := flows[flow].prepare(b), map[string]float64{}
		for _, strategy := range inTurn(strategies) {
			b.Run("strategy="+strategy, func(b *testing.B) {
				t := turn{flow, p, strategy, clients / processes, work, interval()}
				switch {
				case processes > 1:
					measured[strategy] = t.among(b, processes)
				case strategy == "combined" && work == 0:
					measured[strategy] = t.besideCommits(b)
				default:
					l, err := t.run(b.Context(), func() error { b.ResetTimer(); return nil })
					b.StopTimer()
					must(b, err)
					measured[strategy] = report(b, l.Over, l.Waits)
				}
				mustHold(b, flow, p)
			})
		}
		for _, other := range strategies[1:] {
			ratio(b, "strategy="+strategies[0], other, measured[strategies[0]], measured[other])
		}
	})
}

// mustHold fails the benchmark if an invariant of the flow is violated.
func mustHold(b *testing.B, flow string, p place) {
	b.Helper()
	findings, err := flows[flow].audit(b.Context(), p)
	must(b, err)
	for code, found := range findings {
		if found.Count > 0 {
			b.Fatalf("%s is violated: %q", code, found.IDs)
		}
	}
}

// flow is what clients want of a place.
type flow struct {
	prepare func(b *testing.B) place
	open    func(ctx context.Context, t turn) (request func(context.Context) error, done func(), err error) // request is sent until it is answered
	audit   func(ctx context.Context, p place) (invariant.Findings, error)
	batches func(ctx context.Context, p place) (int, error)                                  // the transactions that have made what is stored
	commits func(ctx context.Context, p place) (insert func() error, done func(), err error) // insert makes one row durable
}

var flows = map[string]flow{
	"product": {preparePostgres, purchases, auditInventory, transactions("orders"), inserter},
	"many":    {preparePostgres, purchases, auditInventory, transactions("orders"), inserter},
	"account": {preparePostgres, transfers, auditTransfer, transactions("transfers"), inserter},
	"wallet":  {prepareWallet, credits, auditWallet, walletTransactions, walletInserter},
}

// place is a database, and a prefix of the names of locks.
type place struct {
	Postgres string
	Prefix   string
	Key      string // of a client of the API
	Bonus    string // URL of the bonus service, for wallets

	explain func(plan string) // gets what PostgreSQL tells of the statements of this process; nil: they are not explained
}

func newPrefix() string { return "hot_" + strings.ToLower(rand.Text()[:10]) }

// turn is what a process does: its share of the clients, with one strategy.
type turn struct {
	Flow     string
	Place    place
	Strategy string
	Clients  int
	Work     time.Duration
	Over     time.Duration
}

// load is what a process has measured: of each request, until its answer, and until the last answer.
type load struct {
	Waits []time.Duration
	Over  time.Duration
}

// run opens the service, lets each client send a request, and after begin loads the service.
func (t turn) run(ctx context.Context, begin func() error) (l load, err error) {
	request, done, err := flows[t.Flow].open(ctx, t)
	if err != nil {
		return l, err
	}
	defer done()
	if _, err := closedLoop(ctx, t.Clients, request, 0); err != nil { // connects, prepares statements
		return l, err
	}
	if err := begin(); err != nil {
		return l, err
	}
	return closedLoop(ctx, t.Clients, request, t.Over)
}

// closedLoop lets each client send requests for a time, at least one, each when it has the answer to the last.
func closedLoop(ctx context.Context, clients int, request func(context.Context) error, over time.Duration) (load, error) {
	waits, failed := make([][]time.Duration, clients), make([]error, clients)
	start := time.Now()
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			for len(waits[n]) == 0 || time.Since(start) < over {
				asked := time.Now()
				if failed[n] = request(ctx); failed[n] != nil {
					return
				}
				waits[n] = append(waits[n], time.Since(asked))
			}
		})
	}
	all.Wait()
	return load{slices.Concat(waits...), time.Since(start)}, errors.Join(failed...)
}

// among lets processes share the load.
func (t turn) among(b *testing.B, processes int) float64 {
	text, err := json.Marshal(t)
	must(b, err)
	var all load
	var each []int64
	for _, l := range together[load](b, processes, "turn", string(text)) {
		all.Waits, all.Over, each = append(all.Waits, l.Waits...), max(all.Over, l.Over), append(each, int64(len(l.Waits)))
	}
	return report(b, all.Over, all.Waits, each...)
}

// takeTurn is the role of a process of among.
func takeTurn(args []string) error {
	var t turn
	if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
		return err
	}
	l, err := t.run(context.Background(), ready)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(l)
}

// besideCommits also reports the requests of a batch, the time in which one row is inserted alone on one connection, and the
// batches divided by what that allows: at 1 the sync of the log would limit them.
func (t turn) besideCommits(b *testing.B) float64 {
	l, batches := t.counted(b, func() {})
	insert, done, err := flows[t.Flow].commits(b.Context(), t.Place)
	must(b, err)
	defer done()
	start, n := time.Now(), 0
	for ; n == 0 || time.Since(start) < t.Over/2; n++ {
		must(b, insert())
	}
	commit := time.Since(start).Seconds() / float64(n)
	b.ReportMetric(float64(len(l.Waits))/float64(batches), "ops/batch")
	b.ReportMetric(1000*commit, "commit-ms")
	b.ReportMetric(float64(batches)/l.Over.Seconds()*commit, "batches/commits")
	return report(b, l.Over, l.Waits)
}

// counted runs the turn, with begin before its load, and counts its batches.
func (t turn) counted(b *testing.B, begin func()) (l load, batches int) {
	count := func() (n int) {
		n, err := flows[t.Flow].batches(b.Context(), t.Place)
		must(b, err)
		return n
	}
	var before int
	l, err := t.run(b.Context(), func() error { before = count(); begin(); b.ResetTimer(); return nil })
	b.StopTimer()
	must(b, err)
	return l, count() - before
}

// encode makes the Reply of an outcome, and takes a time for it.
func encode[T any](outcome T, refusal error, work time.Duration) (idempotency.Reply, error) {
	time.Sleep(work)
	reply, err := idempotency.JSON(outcome, refusal)
	if reply.Status = 201; refusal != nil {
		reply.Status = 409
	}
	return reply, err
}

// answered repeats a request that is still open.
func answered(request func() error) error {
	for {
		err := request()
		if !errors.Is(err, locking.ErrBusy) && !errors.Is(err, locking.ErrOutcomeUnknown) && !errors.Is(err, idempotency.ErrInProgress) {
			return err
		}
	}
}
