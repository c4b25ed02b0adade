// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

// Set is a replica set: all its members.
type Set []fault.Member

// The bounds. An election takes two to four seconds with a timeout of two. A
// stopped member does not answer.
const (
	askWait      = 500 * time.Millisecond
	electionWait = 20 * time.Second
	catchUpWait  = 2 * time.Minute // a member may avoid another for a minute
	askEvery     = 20 * time.Millisecond
)

// primary waits until a member accepts writes, in this term or a later one.
func (s Set) primary(ctx context.Context, term int64) (fault.Member, int64, error) {
	var addrs []string
	for _, m := range s {
		addrs = append(addrs, m.Addr)
	}
	n, term, err := primaryOf(ctx, addrs, term)
	if err != nil {
		return fault.Member{}, 0, err
	}
	return s[n], term, nil
}

// others returns all members but one.
func (s Set) others(than fault.Member) (others Set) {
	for _, m := range s {
		if m.Addr != than.Addr {
			others = append(others, m)
		}
	}
	return others
}

// primaryOf queries all members concurrently: a stopped member must not delay the others.
func primaryOf(ctx context.Context, addrs []string, atLeast int64) (n int, term int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, electionWait)
	defer cancel()
	for {
		terms := make([]int64, len(addrs))
		var asking sync.WaitGroup
		for i, addr := range addrs {
			asking.Go(func() { terms[i] = primaryIn(ctx, addr) })
		}
		asking.Wait()
		for i, term := range terms {
			if term > 0 && term >= atLeast {
				return i, term, nil
			}
		}
		if !fault.Wait(ctx, askEvery) {
			return 0, 0, fmt.Errorf("no primary: %w", ctx.Err())
		}
	}
}

// primaryIn returns the term in which a member accepts writes; 0: it does not.
func primaryIn(ctx context.Context, addr string) int64 {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	answer, err := command(ctx, addr, "admin", bson.D{{Key: "hello", Value: 1}})
	writable, _ := answer.Lookup("isWritablePrimary").BooleanOK()
	election, ok := answer.Lookup("electionId").ObjectIDOK() // its last eight bytes are the term
	if err != nil || !writable || !ok {
		return 0
	}
	return int64(binary.BigEndian.Uint64(election[4:]))
}

// CaughtUp waits until all members have everything that the primary has. A member
// with diverged writes has rolled them back by then.
func (s Set) CaughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	for {
		primary, _, err := s.primary(ctx, 0)
		if err == nil {
			err = s.reached(ctx, primary)
		}
		if err == nil {
			return nil
		}
		if !fault.Wait(ctx, askEvery) {
			return fmt.Errorf("not all members have caught up: %w", err)
		}
	}
}

// reached writes a note to the oplog, and waits until every member has it. The wait is
// short, since the primary may change.
func (s Set) reached(ctx context.Context, primary fault.Member) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return note(ctx, primary, "caught up", bson.D{{Key: "w", Value: len(s)}, {Key: "wtimeout", Value: 2000}})
}

// note writes a text to the primary's oplog, with a write concern.
func note(ctx context.Context, primary fault.Member, text string, concern bson.D) error {
	answer, err := command(ctx, primary.Addr, "admin", bson.D{
		{Key: "appendOplogNote", Value: 1},
		{Key: "data", Value: bson.D{{Key: "note", Value: text}}},
		{Key: "writeConcern", Value: concern},
	})
	if failed, ok := answer.Lookup("writeConcernError").DocumentOK(); ok && err == nil {
		err = fmt.Errorf("%s: %v", primary.Addr, failed)
	}
	return err
}

// hostsOf returns the hosts of a connection string. direct builds the connection string for
// a single host, through which a driver connects to no other member.
func hostsOf(mongoURL string) (hosts []string, direct func(host string) string, err error) {
	rest, ok := strings.CutPrefix(mongoURL, "mongodb://")
	authority, rest, _ := strings.Cut(rest, "/")
	path, query, _ := strings.Cut(rest, "?")
	settings, err := url.ParseQuery(query)
	if !ok || err != nil || authority == "" || settings.Get("tls") == "true" || settings.Get("ssl") == "true" {
		return nil, nil, fmt.Errorf("want a URL mongodb://… without TLS: %.60q", mongoURL)
	}
	at := strings.LastIndex(authority, "@") + 1
	settings.Del("replicaSet")
	settings.Del("compressors")
	settings.Set("directConnection", "true")
	if settings.Get("appName") == "" {
		settings.Set("appName", appName)
	}
	return strings.Split(authority[at:], ","), func(host string) string {
		return "mongodb://" + authority[:at] + host + "/" + path + "?" + settings.Encode()
	}, nil
}

const lifetimeLimit = "transactionLifetimeLimitSeconds"

// Lifetime sets how long all members keep a transaction: the locks of a client that was
// stopped, or has died, are held until then. A member forgets the setting when it restarts;
// PrimaryKill restores it.
func Lifetime(ctx context.Context, set Set, seconds int) error {
	for _, m := range set {
		if err := setLifetime(ctx, m, seconds); err != nil {
			return err
		}
	}
	return nil
}

func setLifetime(ctx context.Context, m fault.Member, seconds int) error {
	_, err := command(ctx, m.Addr, "admin", bson.D{{Key: "setParameter", Value: 1}, {Key: lifetimeLimit, Value: seconds}})
	return err
}

func lifetimeOf(ctx context.Context, m fault.Member) (seconds int, err error) {
	answer, err := command(ctx, m.Addr, "admin", bson.D{{Key: "getParameter", Value: 1}, {Key: lifetimeLimit, Value: 1}})
	n, _ := answer.Lookup(lifetimeLimit).AsInt64OK()
	return int(n), err
}

// Abandoned waits for silent, and returns the transactions that are open at the primary and whose clients sent
// nothing for three quarters of that time: each by its session and its number.
func Abandoned(ctx context.Context, set Set, silent time.Duration) (transactions []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	fault.Wait(ctx, silent)
	primary, _, err := set.primary(ctx, 0)
	if err != nil {
		return nil, err
	}
	answer, err := command(ctx, primary.Addr, "admin", bson.D{
		{Key: "aggregate", Value: 1},
		{Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleSessions", Value: true}}}},
			bson.D{{Key: "$match", Value: bson.D{
				{Key: "type", Value: "idleSession"},
				{Key: "transaction.timeInactiveMicros", Value: bson.D{{Key: "$gte", Value: silent.Microseconds() * 3 / 4}}},
			}}},
			bson.D{{Key: "$project", Value: bson.D{{Key: "lsid", Value: 1}, {Key: "number", Value: "$transaction.parameters.txnNumber"}}}},
		}},
		{Key: "cursor", Value: bson.D{}},
	})
	if err != nil {
		return nil, err
	}
	found, _ := answer.Lookup("cursor", "firstBatch").ArrayOK()
	values, _ := found.Values()
	for _, v := range values {
		transactions = append(transactions, v.String())
	}
	return transactions, nil
}
