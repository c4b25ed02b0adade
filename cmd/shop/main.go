// Command shop sells stock and moves money without losing either.
package main

func main() {
	_ = proveCmd{}
	_ = auditCmd{}
}
