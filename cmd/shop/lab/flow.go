// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking/idempotency"
	"shop/locking/invariant"
	"shop/transfer"
	"shop/wallet"
)

// Strategy is one way of a lesson to do its work.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string
	Why    string
}

// strategies returns the strategies of a lesson.
func strategies[S inventory.Strategy | transfer.Strategy | wallet.Strategy](lesson []S) (list []Strategy) {
	for _, s := range lesson {
		list = append(list, Strategy(s))
	}
	return list
}

// moment is a point of a request at which a fault may hit it.
type moment string

const (
	granted moment = "granted" // it holds its lease, and has read nothing
	read    moment = "read"    // it has read, and has written nothing
)

// flow is a lesson that can race. The page is made from it.
type flow struct {
	Name       string
	Title      string
	About      string
	Size       string            // what Settings.Size counts
	Words      map[string]string // kind of an answer, or "paused", → what it means here
	Figures    []Figure
	Limit      string // the figure that the curves must not cross, or ""
	Strategies []Strategy
	Faults     map[Fault]string // → what it does here
	Default    Settings
	Invariants []invariant.Invariant

	requests  int      // for each of Settings.Size
	moments   []moment // at which faults hit, in turns
	dropEvery int      // the fault Drop hits one of so many requests
	open      func(context.Context, site, *lane) (scene, error)
}

// Figure is a number from the stores of a lane.
type Figure struct {
	Key, Label, Unit string // Unit: "" or "EUR", of minor units
	Curve            string // the kind of its curve (lab.js), or ""
}

// Figures are the numbers of a lane at one moment, by their keys.
type Figures map[string]int64

// scene is what a lane of one flow works on: tables or collections of its own. A flow implements it.
type scene interface {
	// replica connects a replica. It returns the function that sends one request.
	replica(context.Context, *replica) (act, error)
	// count reads the figures, all at one moment.
	count(context.Context) (Figures, error)
	// audit runs the audit of the lesson, and puts it into words. It returns the violations of each invariant.
	audit(context.Context, Figures) (broken map[string]int64, text string, err error)
}

// act sends one request of a client, which has a number from 1.
type act func(ctx context.Context, req idempotency.Request, client int) (idempotency.Reply, error)

// site is where a lane keeps its data: its schema, its database and its locks have this name.
type site struct {
	Config
	db   *pgxpool.Pool // of the shop's schema
	name string
}

// flows are all flows, the default first.
var flows = []*flow{stockFlow, moneyFlow, creditFlow}

// offers are the flows with the faults that are allowed here.
func (cfg Config) offers() []*flow {
	if cfg.KillRedis {
		return flows
	}
	var list []*flow
	for _, f := range flows {
		offered := *f
		offered.Faults = maps.Clone(f.Faults)
		delete(offered.Faults, Kill)
		list = append(list, &offered)
	}
	return list
}

func findFlow(name string) *flow {
	if n := slices.IndexFunc(flows, func(f *flow) bool { return f.Name == name }); n >= 0 {
		return flows[n]
	}
	return nil
}

func (f *flow) strategy(name string) (Strategy, bool) {
	if n := slices.IndexFunc(f.Strategies, func(s Strategy) bool { return s.Name == name }); n >= 0 {
		return f.Strategies[n], true
	}
	return Strategy{}, false
}

// The statuses that are stored with the keys, as those of the shop are.
const (
	statusDone    = 201
	statusRefused = 409
)

// encode is the Encode of all lessons.
func encode[T any](_ T, refusal error) (idempotency.Reply, error) {
	if refusal != nil {
		return idempotency.Reply{Status: statusRefused}, nil
	}
	return idempotency.Reply{Status: statusDone}, nil
}

// owner is the client of the shop that owns everything in a race.
var owner = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("shop race"))
