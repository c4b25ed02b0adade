package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"shop/inventory"
)

// Fault is what is done to the holder of a lock during a race.
type Fault string

// The faults.
const (
	NoFault Fault = "none"
	Pause   Fault = "pause"
	Drop    Fault = "drop"
)

// Settings of a race.
type Settings struct {
	Seed       uint32   `json:"seed"`
	Strategies []string `json:"strategies"` // one or two
	Clients    int      `json:"clients"`
	Stock      int      `json:"stock"`
	Fault      Fault    `json:"fault"`
}

// The bounds of a race.
const (
	clientsMin, clientsMax = 2, 64
	stockMin, stockMax     = 1, 200
)

// ErrSettings reports settings that no race can have.
var ErrSettings = errors.New("lab: invalid settings")

// Validate reports all mistakes together.
func (s Settings) Validate() error {
	var errs []error
	if n := len(s.Strategies); n < 1 || n > 2 {
		errs = append(errs, fmt.Errorf("%w: %d strategies, want one or two", ErrSettings, n))
	}
	for _, name := range s.Strategies {
		if _, ok := find(name); !ok {
			errs = append(errs, fmt.Errorf("%w: no strategy %q; there are %s", ErrSettings, name, strings.Join(names(), ", ")))
		}
	}
	if s.Clients < clientsMin || s.Clients > clientsMax {
		errs = append(errs, fmt.Errorf("%w: %d clients, want %d to %d", ErrSettings, s.Clients, clientsMin, clientsMax))
	}
	if s.Stock < stockMin || s.Stock > stockMax {
		errs = append(errs, fmt.Errorf("%w: a stock of %d, want %d to %d", ErrSettings, s.Stock, stockMin, stockMax))
	}
	if !slices.Contains([]Fault{NoFault, Pause, Drop}, s.Fault) {
		errs = append(errs, fmt.Errorf("%w: no fault %q; there are none, pause, drop", ErrSettings, s.Fault))
	}
	return errors.Join(errs...)
}

// Command is the command line that repeats the race, on servers of its own.
func (s Settings) Command() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bin/local exec -- bin/shop race --seed %d", s.Seed)
	for _, name := range s.Strategies {
		fmt.Fprintf(&b, " --strategy %s", name)
	}
	fmt.Fprintf(&b, " --clients %d --stock %d --fault %s", s.Clients, s.Stock, s.Fault)
	return b.String()
}

func find(name string) (inventory.Strategy, bool) {
	all := inventory.Strategies()
	n := slices.IndexFunc(all, func(s inventory.Strategy) bool { return s.Name == name })
	if n < 0 {
		return inventory.Strategy{}, false
	}
	return all[n], true
}

func names() (list []string) {
	for _, s := range inventory.Strategies() {
		list = append(list, s.Name)
	}
	return list
}
