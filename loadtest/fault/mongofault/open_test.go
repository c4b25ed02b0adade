// SPDX-License-Identifier: MIT

package mongofault

import (
	"testing"

	"shop/loadtest/fault"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestOpenTransactions_AreThoseThatHaveNotEnded(t *testing.T) {
	t.Parallel()
	url, set := private(t, "mongo") // without transactions of other tests
	c := talk{t: t, w: newProxy(t, url), db: newDatabase(t, url)}
	count := func(m fault.Member) int64 {
		n, err := openTransactions(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(set[0]); n != 0 {
		t.Errorf("%d open before any began", n)
	}
	session, err := c.db.Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	c.must(c.newLock)(mongo.NewSessionContext(t.Context(), session))
	if n := count(set[0]); n != 1 {
		t.Errorf("%d open, want 1", n)
	}
	c.must(session.CommitTransaction)(t.Context())
	if n := count(set[0]); n != 0 {
		t.Errorf("%d open after the end", n)
	}
}

// The documents of an insert are in a separate section, or in the body.
func TestFirst_IsTheFirstDocumentOfAnInsert(t *testing.T) {
	document := bson.D{{Key: "key", Value: "k-1"}}
	inBody, err := newMessage(bson.D{{Key: "insert", Value: "wallet_operations"}, {Key: "documents", Value: bson.A{document}}})
	if err != nil {
		t.Fatal(err)
	}
	head, err := newMessage(bson.D{{Key: "insert", Value: "wallet_operations"}})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := bson.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	behind := append(message{}, head...)
	behind = append(behind, 1, 0, 0, 0, 0)
	behind = append(append(behind, "documents\x00"...), raw...)
	for name, c := range map[string]struct {
		message message
		want    string
	}{
		"in the body":         {inBody, "k-1"},
		"in a section":        {behind, "k-1"},
		"none":                {head, ""},
		"cut off in the name": {behind[:len(head)+8], ""},
		"no message":          {nil, ""},
	} {
		if got, _ := c.message.first().Lookup("key").StringValueOK(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
