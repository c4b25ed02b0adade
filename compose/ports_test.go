package compose_test

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestCompose_PortsAreThisMachinesAndMoveWithOneVariable(t *testing.T) {
	want := map[string][]uint64{"": {8017, 8080, 8090}, "SHOP_PORT_PREFIX=180": {18017, 18080, 18090}}
	for setting, ports := range want {
		var first []uint64
		for _, s := range project(t, setting).Services {
			for _, p := range s.Ports {
				if ip := net.ParseIP(p.HostIP); ip == nil || !ip.IsLoopback() {
					t.Errorf("%s publishes %s on %q, want a loopback address", s.Name, p.Published, p.HostIP)
				}
				first = append(first, rangeOf(t, p.Published, s.GetScale()))
			}
		}
		if slices.Sort(first); !slices.Equal(first, ports) {
			t.Errorf("with %q the ports begin at %v, want %v", setting, first, ports)
		}
	}
}

// rangeOf gives the first port; there must be one for each replica.
func rangeOf(t *testing.T, published string, replicas int) uint64 {
	t.Helper()
	from, to, several := strings.Cut(published, "-")
	if !several {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || int(last-first)+1 != replicas {
		t.Errorf("%d replicas share the ports %s", replicas, published)
	}
	return first
}
