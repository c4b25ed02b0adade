// SPDX-License-Identifier: MIT

package idempotency

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// Fingerprint returns a hash of a request's operation (method and route) and of its
// intent as JSON. Two requests with one key must have equal fingerprints. Pass parsed
// values, not the bytes of the body, so that white space and the order of members do
// not matter. The fields of intent must be exported.
func Fingerprint(operation string, intent any) ([32]byte, error) {
	data, err := json.Marshal(intent)
	if err != nil {
		return [32]byte{}, fmt.Errorf("idempotency: fingerprint of %s: %w", operation, err)
	}
	return sha256.Sum256(append([]byte(operation+"\n"), data...)), nil
}

// JSON returns a Reply for a caller without a wire format of its own: the outcome, or the
// text of the refusal, as JSON, with status 200 or 409.
func JSON[T any](outcome T, refusal error) (Reply, error) {
	var shown any = outcome
	status := 200
	if refusal != nil {
		shown, status = map[string]string{"refused": refusal.Error()}, 409
	}
	body, err := json.Marshal(shown)
	return Reply{Status: status, Body: body}, err
}
