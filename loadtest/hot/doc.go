// Command hot measures the strategies for hot keys against the plain ones: many clients want one product, one
// pair of accounts, or one wallet.
//
// # How it measures
//
// It is a closed loop: each client sends its next request when it has the answer to the last. A request
// that is answered "busy" is sent again under its key, and its latency is counted from the first time. Clients
// start requests for an interval, and the rate is that of all requests over the time until the last answer.
//
// A strategy and its baseline take turns on the same servers, in pairs, and the one that is first
// alternates, since other programs on the machine slow down both. The result is the ratio of the rates of each
// pair: the median of all pairs, and the range without the smallest and the largest. The rates themselves
// depend on the machine.
//
// The processes of a row are separate programs with their own connections. Each has its share of the clients.
//
// After each row the invariants of the flow are checked in the database: a fast wrong answer is no answer.
//
// # The cases
//
//	product    purchases of one product, in process: combined against row
//	account    transfers between two accounts in both directions, in process: combined against row
//	many       purchases of 10,000 products, in process: combined against redis+row
package main
