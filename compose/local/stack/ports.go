package stack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range that systems hand out to outgoing
// connections (Linux from 32768, macOS from 49152). A port inside that range can
// be lost while its server is down: a client that keeps dialling it will sooner
// or later be given that very port as its own, and connect to itself.
const portMin, portMax = 20000, 32000

// freePorts picks n ports at random that can be listened on now. Someone else
// may take one before the server does; then the start is tried again with others.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 50 * n {
		port := portMin + rand.IntN(portMax-portMin)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // held until all are found, so that none is picked twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("stack: no free port on 127.0.0.1 between 20000 and 32000: stop what listens there")
}
