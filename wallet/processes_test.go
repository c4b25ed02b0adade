// SPDX-License-Identifier: MIT

package wallet_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/wallet"
)

// processEnv is the variable with the crediting of a process. BenchmarkCredit_ThreeProcesses
// starts its processes from the test binary.
const processEnv = "WALLET_TEST_PROCESS"

// crediting is what one process does: its clients credit one wallet, in a closed loop, until its
// standard input ends.
type crediting struct {
	URL, Database     string
	BonusURL          string
	Owner, Wallet     uuid.UUID
	Clients, QueueMax int
}

// credited is the result of a process. A wait is the time until a success, refusals included.
type credited struct {
	Waits   []time.Duration
	Refused int           // busy or unknown
	Silence time.Duration // the longest time without a success
}

// run is the main function of the process. It prints "ready" when it is connected, waits for a
// line, credits, and prints the result.
func (c crediting) run(in io.Reader, out io.Writer) error {
	o, err := wallet.ClientOptions(c.URL)
	if err != nil {
		return err
	}
	client, err := mongo.Connect(o)
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	service := &bonusService{client: http.DefaultClient, url: c.BonusURL}
	svc, err := wallet.New(wallet.Config{Database: client.Database(c.Database), QueueMax: c.QueueMax, Bonus: service.slow})
	if err != nil {
		return err
	}
	if _, err := svc.Wallet(context.Background(), c.Owner, c.Wallet); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	lines := bufio.NewReader(in)
	if _, err := lines.ReadString('\n'); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		stop()
	}()
	did, err := c.credit(ctx, svc)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(did)
}

// credit lets the clients credit the wallet until ctx ends.
func (c crediting) credit(ctx context.Context, svc *wallet.Service) (did credited, err error) {
	var (
		mu   sync.Mutex
		all  sync.WaitGroup
		last = time.Now()
	)
	for range c.Clients {
		all.Go(func() {
			for ctx.Err() == nil {
				req, begin, refused := newRequest(c.Owner), time.Now(), 0
				_, failed := until(ctx, func() (wallet.Reply, error) {
					reply, err := svc.Credit(context.Background(), req, c.Wallet, 10)
					if errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown) {
						refused++
					}
					return reply, err
				})
				now := time.Now()
				mu.Lock()
				did.Refused += refused
				if failed == nil {
					did.Waits = append(did.Waits, now.Sub(begin))
					did.Silence, last = max(did.Silence, now.Sub(last)), now
				} else if refused == 0 {
					err = failed
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	did.Silence = max(did.Silence, time.Since(last))
	return did, err
}

// together runs one process for each of clients, has them credit one wallet for a time, and
// returns the results.
func (c *fixture) together(long time.Duration, queueMax int, clients ...int) []credited {
	c.t.Helper()
	owner := uuid.New()
	id := c.wallet(owner, 0)
	type process struct {
		in  io.WriteCloser
		out *bufio.Reader
		cmd *exec.Cmd
	}
	processes := make([]process, len(clients))
	for i, n := range clients {
		arguments, err := json.Marshal(crediting{c.url, c.db.Name(), c.bonus.url, owner, id, n, queueMax})
		must(c.t, err)
		cmd := exec.CommandContext(c.t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), processEnv+"="+string(arguments))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		must(c.t, err)
		out, err := cmd.StdoutPipe()
		must(c.t, err)
		must(c.t, cmd.Start())
		processes[i] = process{in, bufio.NewReader(out), cmd}
	}
	for _, p := range processes {
		_, err := p.out.ReadString('\n')
		must(c.t, err)
	}
	for _, p := range processes {
		_, err := fmt.Fprintln(p.in)
		must(c.t, err)
	}
	time.Sleep(long) // the test counts what the processes do in this time
	for _, p := range processes {
		must(c.t, p.in.Close())
	}
	did := make([]credited, len(processes))
	for i, p := range processes {
		report, err := io.ReadAll(p.out)
		must(c.t, err)
		must(c.t, p.cmd.Wait())
		must(c.t, json.NewDecoder(bytes.NewReader(report)).Decode(&did[i]))
	}
	c.mustHold()
	return did
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// summary is the result of several processes together.
type summary struct {
	successes      []int
	total, refused int
	fair           float64 // the fewest successes of a process, divided by the most
	p99, silence   time.Duration
}

func sum(did []credited) (s summary) {
	var waits waits
	for _, d := range did {
		s.successes = append(s.successes, len(d.Waits))
		s.total += len(d.Waits)
		s.refused += d.Refused
		s.silence = max(s.silence, d.Silence)
		waits.each = append(waits.each, d.Waits...)
	}
	s.fair = float64(slices.Min(s.successes)) / float64(slices.Max(s.successes))
	if len(waits.each) > 0 {
		s.p99 = waits.p99()
	}
	return s
}

// BenchmarkCredit_ThreeProcesses credits one wallet from three processes of eight clients each,
// and from one client beside a process of eight, with queues and without. It logs the successes
// of each process. With queues it fails if a request is refused. With three processes it also
// fails if one has less than half the successes of another, if p99 is more than half of p99
// without queues, or if the throughput is less than nine tenths of that without queues. Only
// figures of the same run are compared: they depend on the machine.
func BenchmarkCredit_ThreeProcesses(b *testing.B) {
	long := 8 * time.Second
	if once() {
		long = 500 * time.Millisecond
	}
	for b.Loop() {
		c := open(b, wallet.Config{})
		for _, clients := range [][]int{{8, 8, 8}, {1, 8}} {
			none, queue := sum(c.together(long, -1, clients...)), sum(c.together(long, 0, clients...))
			for _, row := range []struct {
				name string
				summary
			}{{"no queue", none}, {"queue", queue}} {
				b.Logf("%v clients, %-8s: successes %v (fewest/most %.2f), %d in all, %d refused, p99 %v, longest without a success %v", clients, row.name,
					row.successes, row.fair, row.total, row.refused, row.p99.Round(time.Millisecond), row.silence.Round(time.Millisecond))
			}
			if once() {
				continue
			}
			if queue.refused > 0 || len(clients) == 3 && (queue.fair < 0.5 || queue.p99 > none.p99/2 || 10*queue.total < 9*none.total) {
				b.Errorf("%v clients: with the queue fewest/most %.2f, %d refused, p99 %v, %d successes; without it %d, p99 %v",
					clients, queue.fair, queue.refused, queue.p99, queue.total, none.total, none.p99)
			}
		}
	}
}
