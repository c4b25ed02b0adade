// SPDX-License-Identifier: MIT

package transfer

import (
	"strings"
	"testing"
)

// The lesson of etcd-unfenced and etcd-fence-only: they are one function, and their
// SQL differs in the predicate alone.
func TestEtcdUnfenced_DiffersFromFenceOnlyInThePredicateAlone(t *testing.T) {
	without, found := strings.CutSuffix(writeFenced, "\n\tAND fence_epoch = $3 AND fence <= $2")
	if !found || without != writeUnfenced {
		t.Errorf("writeFenced is%s\nwriteUnfenced is%s", writeFenced, writeUnfenced)
	}
}
