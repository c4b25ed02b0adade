// SPDX-License-Identifier: MIT

package main

import (
	"maps"
	"time"

	"shop/loadtest"
	"shop/loadtest/crashmatrix"
	"shop/loadtest/fault"
	"shop/loadtest/fault/pgfault"
	"shop/loadtest/fault/replicafault"
	"shop/loadtest/site"
)

// setup is what a fault needs of the servers and the replicas, and how it is injected. What the fault does is in package
// fault, and what a run under it must show in the FaultSpec of its flow. The setups of a flow are a table in its file.
type setup struct {
	redis, postgres, etcd, mongo string // the kind of a private server; "": the shared one

	proxied  bool          // each replica reaches the database of its flow through a proxy
	links    bool          // each replica reaches its stores through links that can be cut
	guard    int           // the pause at after-guard, in units of widening; 0: 1
	begin    int           // … of a transfer at after-begin; 0: 1
	ttl      time.Duration // of the locks; 0: lockTTLs
	async    bool          // COMMITs do not wait for the disk
	lifetime time.Duration // for how long MongoDB keeps the transaction of a silent client; 0: lockTTLs

	args   []string // more arguments of each replica
	start  func(e *environment, t *loadtest.Trial, p *site.Program)
	inject func(e *environment, t *loadtest.Trial) (fault.Fault, error)
}

// private reports whether the fault needs servers of its own.
func (s setup) private() bool { return s.redis+s.postgres+s.etcd+s.mongo != "" }

// setup returns that of a scenario.
func (e *environment) setup(s loadtest.Scenario) setup { return setups()[s.Flow.Name][s.Fault] }

// setups returns the setups of all flows.
func setups() map[string]map[loadtest.Fault]setup {
	return map[string]map[loadtest.Fault]setup{"inventory": inventorySetups(), "transfer": transferSetups(), "wallet": walletSetups()}
}

// withAll adds the faults that are the same for each flow.
func withAll(own map[loadtest.Fault]setup) map[loadtest.Fault]setup {
	all := map[loadtest.Fault]setup{
		loadtest.NoFault: {inject: func(*environment, *loadtest.Trial) (fault.Fault, error) { return fault.None{}, nil }},
		loadtest.Crash:   {inject: crash},
		loadtest.HangUp:  {inject: hangUp},
		loadtest.CombinerKilled: {inject: func(e *environment, t *loadtest.Trial) (fault.Fault, error) {
			l := e.of(t)
			return replicafault.CrashSteps{Replicas: t.Replicas, Flow: l.Name, Steps: l.Batch, Action: "kill-batch", Wait: stepWait, Calm: 2 * lockTTLs[l.Name]}, nil
		}},
		crashmatrix.Name:          {links: true, inject: crashMatrix},
		loadtest.StandbyGone:      standby(false, false),
		loadtest.PrimaryLost:      standby(true, false),
		loadtest.PrimaryLostAsync: standby(true, true),
	}
	maps.Copy(all, own)
	return all
}

func crash(e *environment, t *loadtest.Trial) (fault.Fault, error) {
	if l := e.of(t); len(l.Steps) > 0 {
		return replicafault.CrashSteps{Replicas: t.Replicas, Flow: l.Name, Steps: l.Steps, Action: "kill", Wait: stepWait}, nil
	}
	return replicafault.Crash{Victims: t.Replicas, Times: 6}, nil
}

func hangUp(_ *environment, t *loadtest.Trial) (fault.Fault, error) {
	return loadtest.HangUps{Trial: t}, nil
}

// combinerPaused pauses replicas in a batch, for longer than their lease. Each has a failpoint at another step of a batch.
func combinerPaused(e *environment, t *loadtest.Trial) (fault.Fault, error) {
	return replicafault.Pauses{Replicas: t.Replicas, TTL: lockTTLs[t.Scenario.Flow.Name], InBatch: t.Replicas.PauseInBatch}, nil
}

func stopInBatch(e *environment, t *loadtest.Trial, p *site.Program) {
	l, args := e.of(t), p.Args
	p.Args = func(n int, listen, metrics string) []string {
		return append(args(n, listen, metrics), "--failpoint", l.Name+"/"+l.Batch[n%len(l.Batch)]+"=stop-batch")
	}
}

// allKilled kills all servers of some kinds at once.
func allKilled(times int, kinds ...string) func(*environment, *loadtest.Trial) (fault.Fault, error) {
	return func(e *environment, _ *loadtest.Trial) (fault.Fault, error) {
		f := fault.AllKilled{Times: times, Dead: loadtest.AllKilledDead}
		for _, kind := range kinds {
			members, err := e.members(kind)
			if err != nil {
				return nil, err
			}
			for _, m := range members {
				f.Servers = append(f.Servers, m.Server)
			}
		}
		return f, nil
	}
}

// standby is a fault of the standby of a PostgreSQL, and of its primary if that is lost. A COMMIT that waits keeps its
// connection.
func standby(lost, async bool) setup {
	return setup{
		postgres: postgresPair, args: []string{"--pg-max-conns", "32"},
		inject: func(e *environment, t *loadtest.Trial) (fault.Fault, error) {
			pair, err := e.members(postgresPair)
			return pgfault.Standby{Members: pair, URL: t.Postgres, Away: loadtest.StandbyAway, Lost: lost, Async: async}, err
		},
	}
}

// postgresPair is the kind of a primary with a standby.
const postgresPair = "postgres-standby"
