// SPDX-License-Identifier: MIT

package transfer

import "strings"

// Statement is what a SQL statement of this package does to money. A fault that holds or cuts
// a statement at a proxy in front of PostgreSQL recognizes it by StatementOf, and not by a
// copy of its SQL.
type Statement string

// The kinds of statement.
const (
	WritesNoMoney Statement = ""
	WritesFence   Statement = "update accounts set fence"   // the guard: id is $1, fence $2
	WritesBalance Statement = "update accounts set balance" // id is $1
	WritesAccount Statement = "update accounts set "        // another column; id is $1
	WritesEntry   Statement = "insert into ledger_entries"
	EndsHold      Statement = "update transfers set state"
)

// StatementOf classifies sql. Letter case and spacing do not matter.
func StatementOf(sql string) Statement {
	sql = strings.ToLower(strings.Join(strings.Fields(sql), " "))
	for _, s := range []Statement{WritesFence, WritesBalance, WritesAccount, WritesEntry, EndsHold} {
		if strings.HasPrefix(sql, string(s)) {
			return s
		}
	}
	return WritesNoMoney
}

// Account reports whether s writes to an account, whose id is $1.
func (s Statement) Account() bool {
	return s == WritesFence || s == WritesBalance || s == WritesAccount
}
