// SPDX-License-Identifier: MIT

package lab

// unmeasured says of each row of docs/patterns.md that has no measurement why it has none. The keys are as
// measurement.Row.
var unmeasured = map[string]string{
	"A5":                           "needs MySQL, which the shop does not use",
	"… in MySQL and MariaDB":       "needs MySQL, which the shop does not use",
	"guard in MySQL":               "needs MySQL, which the shop does not use",
	"C11":                          "needs five Redis servers",
	"C12":                          "needs Sentinel",
	"C13":                          "needs a Redis Cluster",
	"D3":                           "needs ZooKeeper, which the shop does not use",
	"B5":                           "see C18",
	"C9":                           "in the figures of C3 and C4: the same script",
	"C4 with several keys":         "see C3, which takes two keys",
	"C4 with a wake-up by message": "as C4: a key that is free sends no message",
	"E3":                           "needs several clients: make bench",
	"B2":                           "as B3, while no other client writes",
	"C10":                          "no operation: how long to wait for another holder",
	"D2":                           "no operation: what happens when a lease is lost",
	"E5":                           "no operation: make prove",
	"B1":                           wrongVariant,
	"C1":                           wrongVariant,
	"C2":                           wrongVariant,
	"C5":                           wrongVariant,
	"C6":                           wrongVariant,
	"… that is deleted when it is released":                    wrongVariant,
	"the deadline as the value: GET, DEL if it is past, SETNX": wrongVariant,
	"the deadline by the wall clock":                           wrongVariant,
	"the lease ID as the fence":                                wrongVariant,
	"guard at the write alone":                                 wrongVariant,
}

const wrongVariant = "wrong: a figure would compare what must not be chosen"
