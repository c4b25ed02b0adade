package wallet

import (
	"slices"
	"testing"
)

func TestEffects_AreTheExecutedOperations(t *testing.T) {
	db, _ := ownMongo(t)
	do(t, db, correctWallets())
	stored, err := effects(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range stored {
		keys = append(keys, s.Key)
		if s.Key == "k1" && (string(s.Answer) != `{"bonus":10}` || s.Order == 0 || s.Client[15] == 0) {
			t.Errorf("%+v", s)
		}
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"k1", "k2", "k3", "shared"}) {
		t.Errorf("%q", keys)
	}
}
