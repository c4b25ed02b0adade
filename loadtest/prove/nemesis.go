// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/etcdfault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/fault/nemesis"
	"shop/loadtest/fault/pgfault"
	"shop/loadtest/fault/redisfault"
	"shop/loadtest/judge"
	"shop/loadtest/linear"
	transferflow "shop/loadtest/scenario/transfer"
)

// nemesisFlags are the flags of a long run with one fault after the other.
type nemesisFlags struct {
	Nemesis bool          `help:"Instead of the matrix, inject one fault after the other, sometimes two at once, by a schedule that is drawn from --seed. At the end goroutines, open files, memory, connections, locks and leases must be what they were before the load."`
	For     time.Duration `default:"30m" help:"Length of the load of each run, whose history is kept in memory until it is checked; at most two minutes for a control, which must be caught in them."`
	Count   int           `default:"1" help:"Run each strategy with this many seeds, from --seed on. With more than one, the files of runs that are as expected are removed."`
}

func (c *app) validateNemesis() error {
	n := c.Nemesis
	switch {
	case !n.Nemesis:
		return nil
	case c.Fault != "" || c.Quick || c.Duration != 0 || c.Target != "":
		return errors.New("--nemesis cannot be combined with --fault, --quick, --duration or --target: it draws the faults, and lasts for --for")
	case c.Replicas < 3:
		return errors.New("--nemesis needs --replicas of at least 3: some of its faults hit a minority of them")
	case n.Count < 1 || n.For < 30*time.Second:
		return errors.New("--count must be at least 1, --for at least 30s")
	}
	return nil
}

// nemeses returns the scenarios of --nemesis. (A scenario with seed 0 would get the proof's seed.)
func (c *app) nemeses(lessons []lesson) (all []loadtest.Scenario) {
	for _, l := range lessons {
		all = append(all, l.Nemesis(l.offers, cmp.Or(c.Seed, 1), c.Nemesis.Count)...)
	}
	return all
}

// repeat returns the command that runs a scenario of a nemesis again.
func (c *app) repeat(s loadtest.Scenario) string {
	command := fmt.Sprintf("bin/local exec -- bin/prove --nemesis --flow %s --strategy %s --for %v --seed %d --rate %d",
		s.Flow.Name, s.Strategy, c.Nemesis.For, s.Seed, c.Rate)
	if c.Replicas != 3 {
		command += fmt.Sprintf(" --replicas %d", c.Replicas)
	}
	if c.Grace != 0 {
		command += fmt.Sprintf(" --grace %v", c.Grace)
	}
	if c.Limits.CheckTime != linear.TimeDefault {
		command += fmt.Sprintf(" --check-time %v", c.Limits.CheckTime)
	}
	if heap := c.Limits.CheckHeap; heap != linear.HeapDefault>>20 {
		command += fmt.Sprintf(" --check-heap %d", heap)
	}
	return command
}

// keepFailed prints how to repeat a run of a nemesis. If --count is above 1, it removes the files of runs
// that are as expected.
func (c *app) keepFailed(progress *progress) func(*loadtest.Result) error {
	return func(r *loadtest.Result) error {
		if r.Fault != loadtest.Nemesis {
			return nil
		}
		r.Repeat = c.repeat(r.Scenario)
		progress.say("    to repeat: %s", r.Repeat)
		if c.Nemesis.Count == 1 || !r.AsExpected {
			return nil
		}
		r.Slim()
		return os.RemoveAll(filepath.Join(c.Out, r.Folder()))
	}
}

// linked returns the URL of a store for each replica: through a link of its own, if replicas have links.
func (e *environment) linked(s loadtest.Scenario, store string, urls []string) (ways []string, err error) {
	if !s.Setup().Links {
		return urls, nil
	}
	for n, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("link to %s: the address is not a URL", store)
		}
		addrs, err := e.link(s, store, n, u.Host)
		if err != nil {
			return nil, err
		}
		u.Host = addrs[0]
		ways = append(ways, u.String())
	}
	return ways, nil
}

// link returns the addresses of a store for replica n, from 0: through a link, if replicas have links.
func (e *environment) link(s loadtest.Scenario, store string, n int, addrs ...string) ([]string, error) {
	if !s.Setup().Links {
		return addrs, nil
	}
	l, err := nemesis.NewLink(n, store, addrs...)
	if err != nil {
		return nil, err
	}
	e.links = append(e.links, l)
	return l.Addrs(), nil
}

// The delay of data on a slow link.
const (
	latency = 60 * time.Millisecond
	jitter  = 50 * time.Millisecond
)

// Nemesis returns a fault that draws from the faults of the replicas, of the stores that the strategy
// uses, and of the links to these stores.
func (e *environment) Nemesis(t *loadtest.Trial) (fault.Fault, error) {
	l, ctx := e.of(t), context.Background()
	uses := l.offers[slices.IndexFunc(l.offers, func(s loadtest.Strategy) bool { return s.Name == t.Scenario.Strategy })].Stores
	parts, err := l.parts(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, link := range e.links {
		parts = append(parts,
			nemesis.Cut(link), nemesis.Cut(link, nemesis.Requests), nemesis.Cut(link, nemesis.Answers),
			nemesis.Slowed(link, latency, jitter), nemesis.Vanished(link, t.Replicas))
	}
	for n := range t.Replicas.Len() {
		parts = append(parts, nemesis.Killed(t.Replicas, n), nemesis.Paused(t.Replicas, n))
	}
	return nemesis.Nemesis{Plan: nemesis.Plan{
		Seed: t.Scenario.Seed, Replicas: t.Replicas.Len(),
		Parts: slices.DeleteFunc(parts, func(p nemesis.Part) bool { return p.Store != "" && !slices.Contains(uses, p.Store) }),
		Calm:  l.calm(t.Scenario, t.TTL()),
	}}, nil
}

// calm returns a gap in which the bounds of liveness expire, and some requests follow. A control is not
// judged by these bounds. It has no calms, so that it meets each kind of fault in its two minutes, unless
// its lesson catches controls in them.
func (l lesson) calm(s loadtest.Scenario, ttl time.Duration) time.Duration {
	if s.Expect == loadtest.Violated && !l.caughtInCalms {
		return 0
	}
	return s.Flow.Bound(loadtest.Nemesis, ttl) + judge.RecoverMargin + calmRest
}

// calmRest is how long requests follow in a calm, after the bounds.
const calmRest = 4 * time.Second

// away is the fault of a store that is killed, and restarted after a while.
func away(store, evidence string, server fault.Server, name string) nemesis.Part {
	return nemesis.Part{
		Kind: store + " killed", Name: name + " killed", Store: store, Outage: true, Shortest: 500 * time.Millisecond, Longest: 3 * time.Second,
		Fault: fault.Restart{Server: server, Name: name, Evidence: evidence, Times: 1, Dead: 1},
	}
}

// within is a fault of a store that stays available.
func within(store, name string, f fault.Fault) nemesis.Part {
	return nemesis.Part{Kind: name, Name: name, Store: store, Shortest: 2 * time.Second, Longest: 4 * time.Second, Fault: f}
}

// late holds writes until another holder has written, which etcd-unfenced cannot survive. It lasts longer
// than the time between two bursts of transfers at 20 transfers a second.
func late(f fault.Fault) nemesis.Part {
	const name = "writes late"
	return nemesis.Part{Kind: name, Name: name, Store: "etcd", Alone: true, Shortest: 4 * time.Second, Longest: 6 * time.Second, Fault: f}
}

// election is a fault of a cluster with a duration of its own.
func election(store, kind string, needs time.Duration, f fault.Fault) nemesis.Part {
	return nemesis.Part{Kind: kind, Name: kind, Store: store, Outage: true, Shortest: needs, Longest: needs, Fault: f}
}

func (e *environment) inventoryParts(_ context.Context, t *loadtest.Trial) ([]nemesis.Part, error) {
	client, err := e.Redis(t.Scenario)
	if err != nil {
		return nil, err
	}
	return []nemesis.Part{
		away("redis", "redis_kills", e.private["redis"], "redis"),
		away("postgres", "pg_restarts", e.private["postgres"], "postgres"),
		within("redis", "locks deleted", redisfault.LockLost{Client: client, Prefix: t.Prefix, Every: 2 * time.Millisecond}),
	}, nil
}

func (e *environment) transferParts(_ context.Context, t *loadtest.Trial) ([]nemesis.Part, error) {
	client, err := e.Etcd(t.Scenario)
	if err != nil {
		return nil, err
	}
	members, err := e.Members(loadtest.EtcdThree)
	if err != nil {
		return nil, err
	}
	lateWrite, err := transferflow.Late(e, t)
	if err != nil {
		return nil, err
	}
	parts := []nemesis.Part{
		away("postgres", "pg_restarts", e.private["postgres"], "postgres"),
		within("postgres", "connections cut at COMMIT", pgfault.CommitCut{Proxies: e.proxies, Every: 100 * time.Millisecond}),
		late(lateWrite),
		within("etcd", "leases revoked", etcdfault.LeasesRevoked{Client: client, Prefix: t.Prefix, Every: lockTTLs["transfer"] / 8}),
		election("etcd", "leader killed", 2*time.Second, etcdfault.LeaderKill{Client: client, Members: members, Times: 1}),
	}
	for n, m := range members {
		parts = append(parts,
			away("etcd", "members_killed", m.Server, "etcd member "+m.Addr),
			nemesis.Part{
				Kind: "quorum lost", Name: "quorum lost but for " + m.Addr, Store: "etcd", Outage: true, Shortest: time.Second, Longest: 3 * time.Second,
				Fault: etcdfault.NoQuorum{Client: client, Members: slices.Concat(members[n+1:], members[:n+1]), Times: 1, Part: 1},
			})
	}
	return parts, nil
}

func (e *environment) walletParts(_ context.Context, t *loadtest.Trial) ([]nemesis.Part, error) {
	members, err := e.Members(t.Scenario.Setup().Mongo)
	if err != nil {
		return nil, err
	}
	set := mongofault.Set(members)
	const more = 100 * time.Millisecond
	parts := []nemesis.Part{
		election("mongo", "primary steps down", mongofault.StepDownNeeds+more, mongofault.StepDown{Set: set, Times: 1}),
		election("mongo", "primary stopped", mongofault.PrimaryPauseNeeds+more, mongofault.PrimaryPause{Set: set, Times: 1}),
		election("mongo", "primary killed", mongofault.PrimaryKillNeeds+more, mongofault.PrimaryKill{Set: set, Times: 1}),
		within("mongo", "commits of unknown result", mongofault.CommitUnknown{Proxies: e.mongoProxies, Every: 100 * time.Millisecond, Phase: 700 * time.Millisecond}),
	}
	for _, m := range set {
		parts = append(parts, away("mongo", "members_killed", reminded{m.Server, set, e.lifetime(t.Scenario)}, "mongod "+m.Addr))
	}
	return parts, nil
}

// reminded is a mongod whose limit on the lifetime of transactions is set again after each start.
// Its start returns when all members have caught up: until then a majority may need each of them.
type reminded struct {
	fault.Server
	set      mongofault.Set
	lifetime time.Duration
}

// Start starts the server, sets the limit and waits.
func (r reminded) Start(ctx context.Context) error {
	if err := r.Server.Start(ctx); err != nil {
		return err
	}
	return errors.Join(mongofault.Lifetime(ctx, r.set, int(r.lifetime.Seconds())), r.set.CaughtUp(ctx))
}

// endpointsOf returns the etcd endpoints of replica n, from 0.
func (e *environment) endpointsOf(s loadtest.Scenario, n int, endpoints []string) (string, error) {
	ways, err := e.link(s, "etcd", n, strings.Split(endpoints[n%len(endpoints)], ",")...)
	return strings.Join(ways, ","), err
}
