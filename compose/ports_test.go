package compose_test

import (
	"net"
	"slices"
	"testing"
)

func TestCompose_PortsAreThisMachinesAndMoveWithOneVariable(t *testing.T) {
	want := map[string][]string{
		"":                     {"18017", "18080", "18081", "18082", "18090", "18091", "18092"}, // 8080 and 9090 are `make run`'s
		"SHOP_PORT_PREFIX=181": {"18117", "18180", "18181", "18182", "18190", "18191", "18192"},
	}
	for setting, ports := range want {
		var published []string
		for _, s := range project(t, setting).Services {
			for _, p := range s.Ports {
				if ip := net.ParseIP(p.HostIP); ip == nil || !ip.IsLoopback() {
					t.Errorf("%s publishes %s on %q, want a loopback address", s.Name, p.Published, p.HostIP)
				}
				published = append(published, p.Published)
			}
		}
		if slices.Sort(published); !slices.Equal(published, ports) {
			t.Errorf("with %q the ports are %v, want %v", setting, published, ports)
		}
	}
}
