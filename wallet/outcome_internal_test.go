// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
)

// poolCleared is like the unexported error of the driver's pool.
type poolCleared struct{}

func (poolCleared) Error() string {
	return "connection pool was cleared because another operation failed"
}
func (poolCleared) Retryable() bool { return true }

// Outside of a transaction, errors of reads and writes have no transient label.
func TestStatement_OutsideOfATransactionWithoutAPrimaryIsBusy(t *testing.T) {
	t.Parallel()
	for _, away := range []error{
		mongo.CommandError{Code: 13435, Message: "not primary and secondaryOk=false"},
		mongo.CommandError{Code: 11602, Message: "operation was interrupted"},
		mongo.CommandError{Labels: []string{"NetworkError"}},
		context.DeadlineExceeded, // the client's, not the caller's
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		poolCleared{},
	} {
		if err := toPublic(t.Context(), classify("look up the key", away)); !errors.Is(err, locking.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
	}
	mistake := mongo.CommandError{Code: 2, Message: "BadValue"}
	if err := toPublic(t.Context(), classify("look up the key", mistake)); errors.Is(err, locking.ErrBusy) || !errors.As(err, &mistake) {
		t.Errorf("%v, want it unchanged, and not ErrBusy", err)
	}
}
