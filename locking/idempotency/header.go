// SPDX-License-Identifier: MIT

package idempotency

import (
	"fmt"
	"strings"
)

// ParseKey parses the value of the header field Idempotency-Key. The draft standard
// specifies a quoted string (RFC 8941, section 3.3.3), but most clients send the bare
// characters. Both are accepted, and "a" and a are one key, so that a client that
// changes its library does not pay twice. Any other value is ErrKey.
func ParseKey(header string) (string, error) {
	key := strings.Trim(header, " \t")
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = unquote(key); !ok {
			return "", fmt.Errorf("%w, bare or as a quoted string (RFC 8941)", ErrKey)
		}
	}
	return key, checkKey(key)
}

// unquote parses an sf-string: only \" and \\ are escapes, and nothing follows the closing quote.
func unquote(s string) (string, bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			i++
			if i == len(s) || (s[i] != '"' && s[i] != '\\') {
				return "", false
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}
