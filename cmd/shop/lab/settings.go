// SPDX-License-Identifier: MIT

package lab

import (
	"errors"
	"fmt"
	"strings"
)

// Fault is what is done during a race.
type Fault string

// The faults. A flow has some of them.
const (
	NoFault Fault = "none"
	Pause   Fault = "pause"
	Drop    Fault = "drop"
	Cut     Fault = "cut"
	Kill    Fault = "kill"
)

// Settings of a race. The zero value of each but Seed stands for the default of the flow.
type Settings struct {
	Seed       uint32   `json:"seed"`
	Flow       string   `json:"flow"`       // inventory, transfer or wallet
	Strategies []string `json:"strategies"` // one or two
	Clients    int      `json:"clients"`
	Size       int      `json:"size"` // units of stock, payments, or credits
	Fault      Fault    `json:"fault"`
}

// The bounds of a race.
const (
	clientsMin, clientsMax = 2, 64
	sizeMin, sizeMax       = 1, 200
)

// ErrSettings reports settings that no race can have.
var ErrSettings = errors.New("lab: invalid settings")

// WithDefaults sets what is missing.
func (s Settings) WithDefaults() Settings {
	if s.Flow == "" {
		s.Flow = flows[0].Name
	}
	f := findFlow(s.Flow)
	if f == nil {
		return s
	}
	if len(s.Strategies) == 0 {
		s.Strategies = f.Default.Strategies
	}
	if s.Clients == 0 {
		s.Clients = f.Default.Clients
	}
	if s.Size == 0 {
		s.Size = f.Default.Size
	}
	if s.Fault == "" {
		s.Fault = f.Default.Fault
	}
	return s
}

// Validate reports all mistakes together.
func (s Settings) Validate() error {
	s = s.WithDefaults()
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrSettings}, args...)...))
	}
	if n := len(s.Strategies); n > 2 {
		wrong("%d strategies, want one or two", n)
	}
	if s.Clients < clientsMin || s.Clients > clientsMax {
		wrong("%d clients, want %d to %d", s.Clients, clientsMin, clientsMax)
	}
	if s.Size < sizeMin || s.Size > sizeMax {
		wrong("a size of %d, want %d to %d", s.Size, sizeMin, sizeMax)
	}
	f := findFlow(s.Flow)
	if f == nil {
		wrong("no flow %q; there are %s", s.Flow, strings.Join(flowNames(), ", "))
		return errors.Join(errs...)
	}
	for _, name := range s.Strategies {
		if _, ok := f.strategy(name); !ok {
			wrong("no strategy %q; there are %s", name, strings.Join(f.strategyNames(), ", "))
		}
	}
	if _, ok := f.Faults[s.Fault]; !ok && s.Fault != NoFault {
		wrong("no fault %q of the flow %s; there are %s", s.Fault, f.Name, strings.Join(f.faultNames(), ", "))
	}
	return errors.Join(errs...)
}

// Command is the command line that repeats the race, on servers of its own, in a checkout with Go.
func (s Settings) Command() string {
	s = s.WithDefaults()
	var b strings.Builder
	servers := ""
	if s.Fault == Kill { // a Redis that keeps no locks, and that is started again
		servers = " --servers postgres,redis-memory --restart redis-memory"
	}
	fmt.Fprintf(&b, "bin/local exec%s -- bin/shop race --flow %s --seed %d", servers, s.Flow, s.Seed)
	for _, name := range s.Strategies {
		fmt.Fprintf(&b, " --strategy %s", name)
	}
	fmt.Fprintf(&b, " --clients %d --size %d --fault %s", s.Clients, s.Size, s.Fault)
	return b.String()
}

func flowNames() (list []string) {
	for _, f := range flows {
		list = append(list, f.Name)
	}
	return list
}

func (f *flow) strategyNames() (list []string) {
	for _, s := range f.Strategies {
		list = append(list, s.Name)
	}
	return list
}

func (f *flow) faultNames() []string {
	list := []string{string(NoFault)}
	for _, fault := range []Fault{Pause, Drop, Cut, Kill} {
		if _, has := f.Faults[fault]; has {
			list = append(list, string(fault))
		}
	}
	return list
}
