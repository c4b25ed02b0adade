// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

// Agree waits until all members have caught up, and returns the collections in which
// they differ. No client may write until it returns.
func Agree(ctx context.Context, set Set, database string) (apart []string, err error) {
	if err := set.CaughtUp(ctx); err != nil {
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
		all := maps.Clone(hashes)
		maps.Copy(all, first)
		for collection := range all {
			if first[collection] != hashes[collection] {
				apart = append(apart, fmt.Sprintf("%s differs between %s and %s", collection, set[0].Addr, m.Addr))
			}
		}
	}
	slices.Sort(apart)
	return apart, nil
}

// hashesOf returns the hash of each collection of a member.
func hashesOf(ctx context.Context, m fault.Member, database string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	answer, err := command(ctx, m.Addr, database, bson.D{{Key: "dbHash", Value: 1}})
	if err != nil {
		return nil, err
	}
	var hashes struct{ Collections map[string]string }
	return hashes.Collections, bson.Unmarshal(answer, &hashes)
}

// RolledBack lists the wallet operations that a member has rolled back and that are
// still missing. Most rolled back operations exist again: their clients got no answer
// and repeated them, and an operation that is repeated gets the same id.
//
// Members write rolled back documents to files in a folder named after the collection's UUID,
// so files of an earlier database are not found.
func RolledBack(ctx context.Context, set Set, database string) (operations []string, err error) {
	const collection = "wallet_operations"
	primary, _, err := set.primary(ctx, 0)
	if err != nil {
		return nil, err
	}
	folder, err := folderOf(ctx, primary, database, collection)
	if err != nil {
		return nil, err
	}
	taken := map[string]bson.RawValue{} // by their text
	for _, m := range set {
		documents, err := takenBack(m, folder)
		if err != nil {
			return nil, err
		}
		for _, d := range documents {
			taken[textOf(d.Lookup("_id"))] = d.Lookup("_id")
		}
	}
	if len(taken) == 0 {
		return nil, nil
	}
	there, err := command(ctx, primary.Addr, database, bson.D{
		{Key: "distinct", Value: collection},
		{Key: "key", Value: "_id"},
		{Key: "query", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: slices.Collect(maps.Values(taken))}}}}},
	})
	if err != nil {
		return nil, err
	}
	ids, err := there.Lookup("values").Array().Values()
	for _, id := range ids {
		delete(taken, textOf(id))
	}
	return slices.Sorted(maps.Keys(taken)), err
}

// textOf formats an operation's id as the rest of the program does.
func textOf(id bson.RawValue) string {
	_, data, _ := id.BinaryOK()
	known, err := uuid.FromBytes(data)
	if err != nil {
		return id.String()
	}
	return known.String()
}

// folderOf returns the collection's UUID, which differs between databases even if the names
// are the same.
func folderOf(ctx context.Context, m fault.Member, database, collection string) (string, error) {
	answer, err := command(ctx, m.Addr, database, bson.D{
		{Key: "listCollections", Value: 1}, {Key: "filter", Value: bson.D{{Key: "name", Value: collection}}},
	})
	if err != nil {
		return "", err
	}
	_, id, ok := answer.Lookup("cursor", "firstBatch", "0", "info", "uuid").BinaryOK()
	if !ok || len(id) != 16 {
		return "", fmt.Errorf("no collection %s.%s", database, collection)
	}
	return uuid.UUID(id).String(), nil
}

// takenBack returns the documents that a member has rolled back, of one collection or of all: *.
func takenBack(m fault.Member, folder string) (documents []bson.Raw, err error) {
	files, err := filepath.Glob(filepath.Join(m.Dir, "rollback", folder, "*.bson"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("rolled back: %w", err)
		}
		documents = append(documents, documentsIn(content)...)
	}
	return documents, nil
}

// documentsIn parses concatenated documents, up to the first incomplete one.
func documentsIn(content []byte) (documents []bson.Raw) {
	for len(content) >= 4 {
		size := int(binary.LittleEndian.Uint32(content))
		if size < 5 || size > len(content) {
			break
		}
		documents, content = append(documents, bson.Raw(content[:size])), content[size:]
	}
	return documents
}
