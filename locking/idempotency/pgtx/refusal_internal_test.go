// SPDX-License-Identifier: MIT

package pgtx

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Only an ERROR means that the COMMIT did not happen. A FATAL may arrive after it, from
// a backend that was terminated just after it had committed. A test with a real server
// cannot hit so short a moment.
func TestCommit_OnlyAnErrorOfTheServerIsARefusal(t *testing.T) {
	t.Parallel()
	for want, errs := range map[bool][]error{
		true: {
			&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "40001"},
			fmt.Errorf("wrapped: %w", &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "23505"}),
		},
		false: {
			&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P01"},
			&pgconn.PgError{SeverityUnlocalized: "PANIC", Code: "XX000"},
			io.ErrUnexpectedEOF,
			errors.New("anything else"),
		},
	} {
		for _, err := range errs {
			if got := refusal(err) != nil; got != want {
				t.Errorf("%v is a refusal: %v", err, got)
			}
		}
	}
}
