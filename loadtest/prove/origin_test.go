// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"
)

func TestCommandLine_CanBeRunAgainAndHoldsNoSecret(t *testing.T) {
	for want, args := range map[string][]string{
		"prove":                                nil,
		"prove --quick --flow wallet --seed=7": {"--quick", "--flow", "wallet", "--seed=7"},
		"prove --postgres-url postgres://…@h/db":   {"--postgres-url", "postgres://shop:s3cret@h/db"},
		"prove --mongo-url=mongodb://…@h:1,h:2/":   {"--mongo-url=mongodb://u:s3cret@h:1,h:2/"},
		"prove --postgres-url 'host=h password=…'": {"--postgres-url", "host=h password=s3cret"},
		`prove --out 'it'\''s'`:                    {"--out", "it's"},
	} {
		if got := commandLine(args); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestOrigin_OfAMachineAndServersThatDoNotAnswer(t *testing.T) {
	const nowhere = "127.0.0.1:1"
	c := app{PostgresURL: "postgres://" + nowhere, RedisURL: "redis://" + nowhere, Etcd: nowhere, MongoURL: "mongodb://" + nowhere}
	o := c.origin(t.Context())
	if got := strings.Join(o.Servers, ", "); got != "PostgreSQL unknown, Redis unknown, etcd unknown, MongoDB unknown" {
		t.Error(got)
	}
	if !strings.Contains(o.Machine, "core") || o.Commit == "" || o.Command != "prove" {
		t.Errorf("%+v", o)
	}
}
