package mongofault

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Agree waits until all members have caught up, and tells in which collections
// they are apart. No client may write meanwhile.
func Agree(ctx context.Context, set Set, database string) (apart []string, err error) {
	if err := set.caughtUp(ctx); err != nil {
		return nil, err
	}
	var first map[string]string
	for i, m := range set {
		hashes, err := hashesOf(ctx, m, database)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = hashes
		}
		for collection := range union(first, hashes) {
			if first[collection] != hashes[collection] {
				apart = append(apart, fmt.Sprintf("%s is not the same on %s and %s", collection, set[0].Addr, m.Addr))
			}
		}
	}
	slices.Sort(apart)
	return apart, nil
}

func union(a, b map[string]string) map[string]bool {
	all := map[string]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return all
}

// hashesOf are those of the collections of a member.
func hashesOf(ctx context.Context, m Member, database string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, undoWait)
	defer cancel()
	answer, err := command(ctx, m.Addr, database, bson.D{{Key: "dbHash", Value: 1}})
	if err != nil {
		return nil, err
	}
	var hashes struct{ Collections map[string]string }
	return hashes.Collections, bson.Unmarshal(answer, &hashes)
}
