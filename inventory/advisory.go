package inventory

import (
	"crypto/sha256"
	"encoding/binary"
)

// lockKey is the number that stands for a name among advisory locks: stable
// over versions and machines, and 64 bits wide. PostgreSQL's own hashtext() is
// neither: undocumented, and 32 bits, so that two of 77,000 names meet with even odds.
// Two names that do meet only wait for each other.
func lockKey(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
