// SPDX-License-Identifier: MIT

package traffic

import (
	"bytes"
	"encoding/json"
	"time"
)

// Moment is the layout in which Canonical writes a time, with the microseconds that PostgreSQL keeps.
// MomentSQL is the same layout for to_char, of a time in UTC.
const (
	Moment    = "2006-01-02T15:04:05.000000Z"
	MomentSQL = `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'`
)

// Canonical returns the body of an answer with every time in the layout Moment: two bodies with equal
// fields are then equal as JSON. It returns {} for a body that is not a JSON object.
func Canonical(body []byte) json.RawMessage {
	from := json.NewDecoder(bytes.NewReader(body))
	from.UseNumber()
	var object map[string]any
	if from.Decode(&object) != nil || object == nil || from.More() || bytes.Contains(body, []byte(`\u0000`)) { // which jsonb cannot keep
		return json.RawMessage("{}")
	}
	return Encode(canonical(object))
}

func canonical(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = canonical(member)
		}
	case []any:
		for i, member := range v {
			v[i] = canonical(member)
		}
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return at.UTC().Format(Moment)
		}
	}
	return value
}
