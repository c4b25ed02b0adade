// SPDX-License-Identifier: MIT

package lab

// unmeasured says of each pattern of docs/patterns.md that has no measurement why it has none. The keys are as
// measurement.Row. The wrong variants are not listed: see wrongVariant.
var unmeasured = map[string]string{
	"A5":                                    "needs MySQL, which the shop does not use",
	"Lease in a table of MySQL and MariaDB": "needs MySQL, which the shop does not use",
	"Guard in MySQL":                        "needs MySQL, which the shop does not use",
	"C11":                                   "needs five Redis servers",
	"C12":                                   "needs Sentinel",
	"C13":                                   "needs a Redis Cluster",
	"D3":                                    "needs ZooKeeper, which the shop does not use",
	"B5":                                    "see C18",
	"C9":                                    "in the figures of C3 and C4: the same script",
	"Several keys in one lease":             "see C3, which takes two keys",
	"A wake-up by message":                  "as C4: a key that is free sends no message",
	"E3":                                    "needs several clients: make bench",
	"B2":                                    "as B3, while no other client writes",
	"C10":                                   "no operation: how long to wait for another holder",
	"D2":                                    "no operation: what happens when a lease is lost",
	"E5":                                    "no operation: make prove",
}

const wrongVariant = "wrong: a figure would compare what must not be chosen"
