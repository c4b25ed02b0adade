// SPDX-License-Identifier: MIT

package wallet

import (
	"testing"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestIDText_FormatsUUIDsAndCompoundKeys(t *testing.T) {
	id := uuid.New()
	stored := bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}
	for want, value := range map[string]any{
		"off by 5":           "off by 5",
		id.String():          stored,
		id.String() + " key": bson.D{{Key: "a", Value: stored}, {Key: "b", Value: "key"}},
		`{"$numberInt":"7"}`: int32(7),
	} {
		kind, data, err := bson.MarshalValue(value)
		if err != nil {
			t.Fatal(err)
		}
		if got := idText(bson.RawValue{Type: kind, Value: data}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
