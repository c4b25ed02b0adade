// Package locking is the idea of a lock with a lease, without any driver.
package locking
