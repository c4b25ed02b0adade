// SPDX-License-Identifier: MIT

package wallet

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Registry returns a registry that stores a uuid.UUID as BSON's own type for it (binary, subtype
// 4). The shell shows it as a UUID, and MongoDB sorts it by bytes.
var Registry = sync.OnceValue(func() *bson.Registry {
	r := bson.NewRegistry()
	t := reflect.TypeFor[uuid.UUID]()
	r.RegisterTypeEncoder(t, bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error {
		id := v.Interface().(uuid.UUID)
		return w.WriteBinaryWithSubtype(id[:], bson.TypeBinaryUUID)
	}))
	r.RegisterTypeDecoder(t, bson.ValueDecoderFunc(func(_ bson.DecodeContext, r bson.ValueReader, v reflect.Value) error {
		data, subtype, err := r.ReadBinary()
		if err != nil {
			return err
		}
		if subtype != bson.TypeBinaryUUID {
			return fmt.Errorf("wallet: binary subtype %d is not a UUID", subtype)
		}
		id, err := uuid.FromBytes(data)
		v.Set(reflect.ValueOf(id))
		return err
	}))
	return r
})
