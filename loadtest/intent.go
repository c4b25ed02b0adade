package loadtest

import "cmp"

// Intent is one thing a client wants, under one idempotency key. It is sent as
// often as it takes to learn what became of it.
type Intent struct {
	Client    int    // its sender: a place among the credentials
	Key       string // names it in the history
	SharedKey string // the idempotency key that it is sent under, if that is another one: two intents may share it
	Action    Action
	Method    string
	Path      string
	Body      []byte
	Contends  []string // what it has to be alone with: products, accounts, wallets
	Of        any      // what is asked for, in a type of the flow
	Ends      bool     // it ends what was begun by another one: its success does not show that something new can begin
}

// Action is what a request asks for, in a word of the flow.
type Action string

// IdempotencyKey is the key that it is sent under.
func (i Intent) IdempotencyKey() string { return cmp.Or(i.SharedKey, i.Key) }
