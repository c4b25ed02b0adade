package wallet

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Registry knows how a uuid.UUID is stored: as BSON's own type for it (binary,
// subtype 4), which the shell shows as a UUID and sorts by bytes.
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
			return fmt.Errorf("wallet: binary subtype %d is no UUID", subtype)
		}
		id, err := uuid.FromBytes(data)
		v.Set(reflect.ValueOf(id))
		return err
	}))
	return r
})
