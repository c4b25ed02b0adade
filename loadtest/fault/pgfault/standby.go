// SPDX-License-Identifier: MIT

package pgfault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
)

// Standby keeps the standby of a primary away for a while. What is committed meanwhile is on the primary
// alone: its COMMITs wait, if replication is synchronous, and clients send the keys of these requests again.
//
//	0 s    the standby is killed
//	       COMMITs wait, end as unknown, and are sent again
//	Away   the standby is started again: COMMITs go on
//	       or, if the primary is Lost: the primary is killed for good, and the standby is started and promoted
//
// The event ends when the standby has taken over, or else before it is back: a write that was sent and acknowledged
// during the event is then on the primary alone.
type Standby struct {
	Members []fault.Member // the primary and its standby
	URL     string         // of a database of them, as a superuser
	Away    time.Duration
	Lost    bool // the primary is lost with what it alone has
	Async   bool // COMMITs do not wait for the standby
}

// The bounds. A standby that was killed replays its WAL when it is started.
const (
	standbyWait = 30 * time.Second
	waitsEvery  = 10 * time.Millisecond
)

// Inject counts the COMMITs that the primary reports as waiting for the standby, and the promotions. It starts the
// standby even if it fails or ctx ends; the primary is then not lost.
func (s Standby) Inject(ctx context.Context, _ time.Duration) ([]fault.Event, error) {
	whole, cancel := fault.Undoing(ctx)
	defer cancel()
	primary, err := s.connect(whole, 0)
	if err != nil {
		return nil, err
	}
	defer primary.Close(whole)
	if s.Async {
		if err := asynchronous(whole, primary); err != nil {
			return nil, err
		}
	}
	killed := s.Members[1].Server.Kill(whole)
	event := fault.Event{What: "standby killed", At: time.Now(), Hits: 1, Seen: map[string]int64{}}
	event.Seen["commits_waited"], err = waits(ctx, primary, s.Away)
	event.Until = time.Now()
	if err = errors.Join(killed, err, ctx.Err()); s.Lost && err == nil {
		err = s.promote(whole)
		event.What += fmt.Sprintf(", primary killed after %v, standby promoted after another %.1f s", s.Away, time.Since(event.Until).Seconds())
		event.Until, event.Seen["promotions"] = time.Now(), 1
	} else {
		err = errors.Join(err, s.Members[1].Server.Start(whole))
	}
	return []fault.Event{event}, err
}

// promote replaces the primary by the standby, which is down.
func (s Standby) promote(ctx context.Context) error {
	if err := errors.Join(s.Members[0].Server.Kill(ctx), s.Members[1].Server.Start(ctx)); err != nil {
		return err
	}
	standby, err := s.connect(ctx, 1)
	if err != nil {
		return err
	}
	defer standby.Close(ctx)
	var done bool
	if err := standby.QueryRow(ctx, "SELECT pg_promote()").Scan(&done); err != nil || !done {
		return fmt.Errorf("the standby was not promoted: %w", err)
	}
	return nil
}

// connect connects to one member, whether it takes writes or not.
func (s Standby) connect(ctx context.Context, member int) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(s.URL)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.Members[member].Addr)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	config.Host, config.Port, config.Fallbacks, config.ValidateConnect = host, uint16(number), nil, nil
	return pgx.ConnectConfig(ctx, config)
}

// asynchronous makes COMMITs no longer wait for the standby.
func asynchronous(ctx context.Context, primary *pgx.Conn) error {
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()"} {
		if _, err := primary.Exec(ctx, sql); err != nil {
			return err
		}
	}
	for end := time.Now().Add(standbyWait); ; {
		var waiting int
		err := primary.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication WHERE sync_state <> 'async'").Scan(&waiting)
		if err != nil || waiting == 0 {
			return err
		}
		if time.Now().After(end) || !fault.Wait(ctx, waitsEvery) {
			return errors.New("COMMITs still wait for the standby")
		}
	}
}

// waits counts the COMMITs that wait for the standby within a time.
func waits(ctx context.Context, primary *pgx.Conn, over time.Duration) (n int64, err error) {
	seen := map[string]bool{}
	for end := time.Now().Add(over); time.Now().Before(end) && fault.Wait(ctx, waitsEvery); {
		rows, err := primary.Query(ctx, `
SELECT concat(pid, ' ', query_start) -- which may be NULL: the server reads the two at different moments
FROM pg_stat_activity
WHERE datname = current_database() AND wait_event = 'SyncRep'`)
		if err != nil {
			return 0, err
		}
		waiting, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return 0, err
		}
		for _, commit := range waiting {
			seen[commit] = true
		}
	}
	return int64(len(seen)), nil
}
