package loadtest

import (
	"bytes"
	"encoding/json"
	"time"
)

// Moment is how Canonical writes a moment: what PostgreSQL keeps of one. MomentSQL is the same
// for to_char, of a time in UTC.
const (
	Moment    = "2006-01-02T15:04:05.000000Z"
	MomentSQL = `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'`
)

// Canonical is the body of an answer in which every moment is written in one way, so that
// two bodies are equal as JSON if all their fields are; {} if it is no JSON object.
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
