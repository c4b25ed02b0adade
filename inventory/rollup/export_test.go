// SPDX-License-Identifier: MIT

package rollup

import "time"

// DueAfter returns r for which a day is due when it has been over for d.
func (r Roller) DueAfter(d time.Duration) Roller {
	r.settle = d
	return r
}

// InPieces returns r with n movements in a transaction.
func (r Roller) InPieces(n int) Roller {
	r.piece = n
	return r
}
