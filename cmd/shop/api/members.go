package api

import "encoding/json"

// memberTwice looks for an object that names a member twice, in valid JSON, and
// returns the first such name. RFC 8259 leaves open which of the two counts, and
// readers differ: a proxy may check the one and the shop sell the other. Names
// are compared as they are decoded, so that "a" and "\u0061" are one.
func memberTwice(d *json.Decoder) (string, bool) {
	type level struct {
		names map[string]bool // nil: an array
		value bool            // of an object: the name was read, its value comes next
	}
	d.UseNumber()         // 1e400 is for the schema to refuse
	levels := []level{{}} // the document itself, like an array of one
	for {
		token, err := d.Token()
		if err != nil {
			return "", false // the end
		}
		at := &levels[len(levels)-1]
		if name, ok := token.(string); ok && at.names != nil && !at.value {
			if at.names[name] {
				return name, true
			}
			at.names[name], at.value = true, true
			continue
		}
		at.value = false
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
	}
}
