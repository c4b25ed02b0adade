// SPDX-License-Identifier: MIT

package daemon

import (
	"context"
	"strings"
	"syscall"
)

// Kind describes how one kind of server is started, used and ended.
type Kind struct {
	Name    string
	File    string   // of its program
	Members int      // processes that form one server; 0 is 1
	Ports   int      // ports per member; 0 is 1; the first is its address
	Users   []string // the first that exists runs it when this process runs as root; empty: root

	Setup func(context.Context, *Instance) error // once, before the first start
	Argv  func(*Instance) []string               // arguments of the program
	Ready func(context.Context, *Instance) error // nil when the server has answered a query
	Join  func(context.Context, *Instance) error // once, when all members are ready; gets the first
	URL   func(*Instance) string                 // its address, for a client; nil: host:port

	Stop  syscall.Signal     // clean shutdown; 0: SIGTERM
	Quick syscall.Signal     // fastest end that leaves nothing outside the folder; 0: SIGKILL
	Scrub func(Record) error // removes what a killed server leaves outside its folder; fails while it is in use
}

// Variable returns the setting that holds the path of a program, such as SHOP_REDIS_SERVER.
func Variable(file string) string {
	name, _, _ := strings.Cut(file, "-")
	return "SHOP_" + strings.ToUpper(name) + "_SERVER"
}

// URL is the address of the server for a client.
func (i *Instance) URL() string {
	if i.kind.URL == nil {
		return i.Addr()
	}
	return i.kind.URL(i.Cluster[0])
}

// Addresses lists host:port of all members.
func (i *Instance) Addresses() string {
	var all []string
	for _, m := range i.Cluster {
		all = append(all, m.Addr())
	}
	return strings.Join(all, ",")
}
