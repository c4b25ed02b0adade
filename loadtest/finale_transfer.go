package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// spend shows that all money can be spent, and no more than all of it: when the
// holds are over, each account sends what it says is available, which must work,
// and then one more, which must be refused.
func spend(ctx context.Context, r *run) invariant.Findings {
	ctx, stop := context.WithTimeout(ctx, r.patience())
	defer stop()
	findings := invariant.Findings{}
	awaitHolds(ctx, r)
	findings.Add("I-SPENT")
	accounts := r.plan.Accounts
	for i, from := range accounts {
		to := accounts[(i+1)%len(accounts)]
		if wrong := r.volley.spendAll(ctx, i, from, to); wrong != "" {
			findings.Add("I-SPENT", "account "+from.ID.String()+": "+wrong)
		}
	}
	return findings
}

// awaitHolds returns when no hold is left, or the sweeper has had time for all of
// them. Those that are left then are found by the audit.
func awaitHolds(ctx context.Context, r *run) {
	conn, err := pgx.Connect(ctx, r.database.URL)
	if err != nil {
		return // so that it will be found sooner
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for end := time.Now().Add(LiveBound(r.ttl())); time.Now().Before(end); {
		n, err := invariant.Number(ctx, conn, `SELECT count(*) FROM transfers WHERE state = 'reserved'`)
		if err == nil && n == 0 || !fault.Wait(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// spendAll says what went wrong; "" is nothing.
func (v *volley) spendAll(ctx context.Context, replica int, from, to Account) string {
	available, err := v.available(ctx, replica, from)
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	send := func(name string, amount int64) (*Intent, bool) {
		i := moveIntent(from.Client, name+from.ID.String(), &Move{From: from.ID, To: to.ID, Amount: amount})
		return i, v.settle(ctx, replica, i)
	}
	if available < 0 {
		return fmt.Sprintf("%d are available", available)
	}
	if available > 0 {
		if all, ok := send("all-", available); !ok {
			return fmt.Sprintf("%d are available, and to send them ended as %s", available, v.history.last(all.Key))
		}
	}
	if more, _ := send("more-", 1); v.history.problem(more.Key) != "insufficient-funds" {
		return fmt.Sprintf("all %d were sent, and 1 more ended as %s", available, v.history.last(more.Key))
	}
	return ""
}

// available asks the service what an account has to spend.
func (v *volley) available(ctx context.Context, replica int, a Account) (int64, error) {
	return v.ask(ctx, replica, "/v1/accounts/"+a.ID.String(), a.Client, "available")
}

// ask reads a number of something from one replica after the other, until one answers.
func (v *volley) ask(ctx context.Context, replica int, path string, client int, field string) (int64, error) {
	for {
		n, err := v.read(ctx, v.bases[replica%len(v.bases)]+path, v.headers.Clients[client], field)
		if err == nil || !fault.Wait(ctx, chaseFirst) {
			return n, err
		}
		replica++
	}
}

func (v *volley) read(ctx context.Context, url string, header http.Header, field string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header = header.Clone()
	res, err := private.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, bodyMax))
	if err != nil || res.StatusCode != http.StatusOK {
		return 0, errors.Join(fmt.Errorf("%s: %s", res.Status, body), err)
	}
	var shown map[string]json.RawMessage
	var n int64
	if err := errors.Join(json.Unmarshal(body, &shown), json.Unmarshal(shown[field], &n)); err != nil {
		return 0, fmt.Errorf("no %s in it: %s", field, body)
	}
	return n, nil
}
