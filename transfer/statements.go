package transfer

import "strings"

// Statement is what a statement of this package does to money, as a proxy before
// PostgreSQL sees it: a fault that holds or cuts a statement asks here, and not by a copy
// of its SQL.
type Statement string

// The statements that matter.
const (
	WritesNoMoney Statement = ""
	WritesFence   Statement = "update accounts set fence"   // the guard: id is $1, fence $2
	WritesBalance Statement = "update accounts set balance" // id is $1
	WritesAccount Statement = "update accounts set "        // something else of an account; id is $1
	WritesEntry   Statement = "insert into ledger_entries"
)

// StatementOf recognizes SQL in any case and spacing.
func StatementOf(sql string) Statement {
	sql = strings.ToLower(strings.Join(strings.Fields(sql), " "))
	for _, s := range []Statement{WritesFence, WritesBalance, WritesAccount, WritesEntry} {
		if strings.HasPrefix(sql, string(s)) {
			return s
		}
	}
	return WritesNoMoney
}

// Account tells whether it writes to an account, whose id is $1.
func (s Statement) Account() bool {
	return s == WritesFence || s == WritesBalance || s == WritesAccount
}
