// SPDX-License-Identifier: MIT

package mongofault

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestRolledBack_AMissingDatabaseIsAnError(t *testing.T) {
	t.Parallel()
	_, set := private(t, "mongo")
	if ids, err := RolledBack(t.Context(), set, "nowhere"); err == nil {
		t.Errorf("%q", ids)
	}
}

func TestRolledBack_AnIncompleteFileYieldsItsCompleteDocuments(t *testing.T) {
	var content []byte
	for i := range 2 {
		document, err := bson.Marshal(field("_id", i))
		if err != nil {
			t.Fatal(err)
		}
		content = append(content, document...)
	}
	for cut, want := range map[int]int{0: 2, 1: 1, len(content) - 3: 0} {
		if got := documentsIn(content[:len(content)-cut]); len(got) != want {
			t.Errorf("%v without the last %d bytes, want %d", got, cut, want)
		}
	}
}
