// SPDX-License-Identifier: MIT

package mongofault

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestAgree_NamesTheCollectionInWhichAMemberDiffers(t *testing.T) {
	t.Parallel()
	url, set := private(t, "mongo3")
	db := newDatabase(t, url)
	if apart, err := Agree(t.Context(), set, db.Name()); err != nil || len(apart) != 0 {
		t.Fatalf("%q, %v", apart, err)
	}
	primary, _, err := set.primary(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	// A command of MongoDB's own tests, which writes to this member only.
	_, err = command(t.Context(), set.others(primary)[0].Addr, db.Name(), bson.D{
		{Key: "godinsert", Value: "wallet_entries"}, {Key: "obj", Value: bson.D{{Key: "_id", Value: 1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	apart, err := Agree(t.Context(), set, db.Name())
	if err != nil || len(apart) == 0 || !strings.HasPrefix(apart[0], "wallet_entries ") {
		t.Errorf("%q, %v", apart, err)
	}
}
