// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/etcdlock"
	"shop/locking/idempotency"
	"shop/locking/wrong/leaseid"
	"shop/transfer"
)

// moneyFlow pays from one account to an account of each client.
var moneyFlow = &flow{
	Name: "transfer", Title: "A race for money",
	About: "Two strategies make the same payments at the same time, each on two replicas that are started for the race, with real PostgreSQL and etcd. All payments are of 100.00 EUR from one account, which has enough for each of them once. At the end PostgreSQL adds up the balances: what was paid and not debited came from nowhere.",
	Size:  "Payments",
	Words: map[string]string{"done": "paid", "refused": "insufficient funds", "paused": "what it had sent to PostgreSQL arrived at the end of the pause", "what": "euros by which balances differ from their entries"},
	Figures: []Figure{
		{Key: "drift", Label: "drift", Unit: "EUR", Curve: "bad"},
		{Key: "total", Label: "all balances", Unit: "EUR"},
		{Key: "opening", Label: "at the opening", Unit: "EUR"},
		{Key: "paid", Label: "paid", Unit: "EUR"},
		{Key: "debited", Label: "debited", Unit: "EUR"},
	},
	Strategies: strategies(transfer.Strategies()),
	Faults: map[Fault]string{
		Pause: "Twice, the replica of a holder stops for longer than the lease's TTL: once with its write sent and not yet delivered, and once before it has read. What it has sent arrives afterwards. A row that has seen a newer fence refuses it.",
		Drop:  "For some payments, the lease of the holder is revoked in etcd. The holder is not told at once. Without a lock in etcd there is nothing to revoke.",
		Cut:   "Twice, all connections to etcd are cut, and refused for a second, as if etcd were killed. Without a lock in etcd there is nothing to cut.",
	},
	Default:    Settings{Strategies: []string{"etcd-unfenced", "etcd-fence-only"}, Clients: 32, Size: 100, Fault: Pause},
	Invariants: transfer.Invariants.Invariants,
	requests:   1, moments: []moment{read, granted}, dropEvery: 8,
	open: openMoney,
}

const (
	etcdTTL = 2 * time.Second // the least that etcd grants
	payment = 100_00          // cents
)

// LeaseIDs makes the store of the strategy lease-id-fence, a control. Its fences are wrong, so it is made
// here: a test checks that nothing but the lab imports it.
func LeaseIDs(client *clientv3.Client, prefix string, ttl time.Duration) (locking.Store, error) {
	return leaseid.New(client, prefix+"/leaseid/", ttl)
}

// money is the scene of moneyFlow.
type money struct {
	site
	lane   *lane
	url    string
	pool   *pgxpool.Pool // of the audit
	payer  uuid.UUID
	payees []uuid.UUID       // one for each client
	client map[uuid.UUID]int // payee → its client, from 1
}

func openMoney(ctx context.Context, p site, l *lane) (_ scene, err error) {
	m := &money{site: p, lane: l, client: map[uuid.UUID]int{}}
	l.pauseTime = etcdTTL + 600*time.Millisecond
	if m.url, err = makeTables(ctx, p, transfer.Migrate); err != nil {
		return nil, err
	}
	if m.pool, err = openPool(ctx, m.url, 1, nil); err != nil {
		return nil, err
	}
	l.onClose(m.pool.Close)
	books, err := transfer.New(transfer.Config{Pool: m.pool, Strategy: "row"})
	if err != nil {
		return nil, err
	}
	for n := range l.settings.Clients + 1 {
		a := transfer.Account{ID: uuid.NewSHA1(owner, []byte{byte(n)}), Owner: owner, Currency: "EUR"}
		if n == 0 {
			m.payer, a.Opening = a.ID, payment*int64(l.settings.Size)
		} else {
			m.payees, m.client[a.ID] = append(m.payees, a.ID), n
		}
		if _, err := books.OpenAccount(ctx, a); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *money) replica(ctx context.Context, r *replica) (act, error) {
	r.late = &link{}
	pool, err := openPool(ctx, m.url, connsMax, r.late)
	if err != nil {
		return nil, err
	}
	m.lane.onClose(pool.Close)
	config := transfer.Config{
		Pool: pool, Lock: locking.Options{Observer: m.lane.record.observe},
		Strategy: m.lane.strategy.Name, Count: counts[transfer.EventKind](m.lane.record),
		// A Failpoint would cut the last message in two, and only whole messages arrive late. Encode is called before it.
		Encode: func(t transfer.Transfer, refusal error) (idempotency.Reply, error) {
			m.lane.pass(context.Background(), r, m.lane.record.of(m.client[t.To]), read)
			return encode(t, refusal)
		},
	}
	if m.lane.locks() {
		if err := m.connect(ctx, r, &config); err != nil {
			return nil, err
		}
	}
	service, err := transfer.New(config)
	if err != nil {
		return nil, err
	}
	m.lane.onClose(service.Close)
	return func(ctx context.Context, req idempotency.Request, client int) (idempotency.Reply, error) {
		reply, err := service.Transfer(ctx, req, transfer.Move{From: m.payer, To: m.payees[client-1], Amount: payment, Currency: "EUR"})
		if err == nil && !reply.Replayed {
			m.lane.record.add(Event{Attempt: r.attempt(ctx), Kind: "committed"})
		}
		return reply, err
	}, nil
}

// connect sets the lock stores of config.
func (m *money) connect(ctx context.Context, r *replica, config *transfer.Config) error {
	client, err := etcdClient(m.Config, &r.locks)
	if err != nil {
		return err
	}
	m.lane.onClose(func() { _ = client.Close() })
	prefix := m.LockPrefix + "/" + m.name
	store, err := etcdlock.New(ctx, client, etcdTTL, etcdlock.Options{Prefix: prefix})
	if err != nil {
		return err
	}
	m.lane.onClose(store.Close)
	ids, err := LeaseIDs(client, prefix, etcdTTL)
	if err != nil {
		return err
	}
	config.Locks, config.Epoch, config.LeaseIDs = queued{traced{store, r}, store}, store.Epoch(), traced{ids, r}
	// The first in the queue of the payer's account is the holder.
	key := "account/" + m.payer.String()
	queue := fmt.Sprintf("%s/%d:%s/", prefix, len(key), key)
	r.drop = func(ctx context.Context) bool {
		first, err := client.Get(ctx, queue, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(1))
		if err != nil || len(first.Kvs) == 0 {
			return false
		}
		_, err = client.Revoke(ctx, clientv3.LeaseID(first.Kvs[0].Lease))
		return err == nil
	}
	return nil
}

// count adds up the balances. One statement sees one snapshot.
func (m *money) count(ctx context.Context) (Figures, error) {
	var opening, total, debited, paid, drift int64
	err := m.pool.QueryRow(ctx, `
		SELECT sum(opening)::bigint, sum(balance)::bigint,
		       (sum(opening - balance) FILTER (WHERE id = $1))::bigint,
		       (SELECT COALESCE(-sum(delta), 0)::bigint FROM ledger_entries WHERE account_id = $1),
		       (`+transfer.Invariants.Numbers[0].Query+`)
		FROM accounts`, m.payer).Scan(&opening, &total, &debited, &paid, &drift)
	return Figures{"opening": opening, "total": total, "debited": debited, "paid": paid, "drift": drift}, err
}

func (m *money) audit(ctx context.Context, f Figures) (map[string]int64, string, error) {
	broken, err := transfer.Audit(ctx, m.pool)
	made, all := f["total"]-f["opening"], f["paid"] == f["opening"]
	text := fmt.Sprintf("paid %s, each payment debited once", euros(f["paid"]))
	switch {
	case made > 0:
		text = fmt.Sprintf("money moved twice: %s appeared from nowhere", euros(made))
	case made < 0:
		text = fmt.Sprintf("money was lost: %s vanished", euros(-made))
	case f["drift"] > 0:
		text = fmt.Sprintf("updates were lost: balances differ from their entries by %s", euros(f["drift"]))
	case broken["T4"] > 0:
		text = fmt.Sprintf("paid %s, but an older fence wrote after a newer one", euros(f["paid"]))
	case !all:
		text = fmt.Sprintf("paid %s of %s when the time was over, and nothing twice", euros(f["paid"]), euros(f["opening"]))
	}
	return broken, text, err
}

// euros formats cents.
func euros(cents int64) string { return fmt.Sprintf("%d.%02d EUR", cents/100, cents%100) }
