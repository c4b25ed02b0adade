package rollup

// InPieces returns r with n movements in a transaction.
func (r Roller) InPieces(n int) Roller {
	r.piece = n
	return r
}
