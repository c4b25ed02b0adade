// Package inventory sells stock to many buyers at once and never sells what is not there.
package inventory
