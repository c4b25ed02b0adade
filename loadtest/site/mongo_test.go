// SPDX-License-Identifier: MIT

package site

import "testing"

func TestWithMongoDatabase_KeepsHostsAndOptionsAndReplacesTheDatabase(t *testing.T) {
	for server, want := range map[string]string{
		"mongodb://127.0.0.1:1/shop?replicaSet=x":                        "mongodb://127.0.0.1:1/proof?replicaSet=x&appName=proof",
		"mongodb://127.0.0.1:1,127.0.0.1:2,localhost/shop?replicaSet=x":  "mongodb://127.0.0.1:1,127.0.0.1:2,localhost/proof?replicaSet=x&appName=proof",
		"mongodb://127.0.0.1:1":                                          "mongodb://127.0.0.1:1/proof?appName=proof",
		"mongodb://user:word@127.0.0.1:1/?directConnection=true&tls=off": "mongodb://user:word@127.0.0.1:1/proof?directConnection=true&tls=off&appName=proof",
		"mongodb+srv://cluster.example/shop":                             "mongodb+srv://cluster.example/proof?appName=proof",
	} {
		if got, err := withMongoDatabase(server, "proof"); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", server, got, err, want)
		}
	}
	for _, wrong := range []string{"", "postgres://127.0.0.1/shop", "mongodb://", "127.0.0.1:1"} {
		if got, err := withMongoDatabase(wrong, "proof"); err == nil {
			t.Errorf("%q: %q and no error", wrong, got)
		}
	}
}
