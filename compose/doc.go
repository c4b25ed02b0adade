// Package compose holds the shop's servers for those who have Docker
// (compose.yaml, Dockerfile) and, in local, for those who have not. Its tests
// check what can be known of compose.yaml without an engine.
package compose
