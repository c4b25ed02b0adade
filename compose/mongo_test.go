package compose_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A set that is made without an address knows its member by the container's id,
// which nobody can reach; and a port that is open is no primary yet.
func TestCompose_MongoIsAPrimaryUnderAnAddressThatOthersReach(t *testing.T) {
	mongo := project(t).Services["mongo"]
	check := strings.Join(mongo.HealthCheck.Test, " ")
	set := argument(mongo.Command, "--replSet")
	for _, want := range []string{"_id: '" + set + "'", "host: 'mongo:27017'", "isWritablePrimary", "NotYetInitialized"} {
		if !strings.Contains(check, want) {
			t.Errorf("the health check lacks %q: %s", want, check)
		}
	}
	if set == "" || strings.Contains(check, "\n") {
		t.Errorf("set %q, health check %q", set, check)
	}
}

// Without an order the cache takes half of the memory; mongosh, which asks
// whether it is healthy, needs its share.
func TestCompose_MongosCacheLeavesRoom(t *testing.T) {
	mongo := project(t).Services["mongo"]
	gigabytes, err := strconv.ParseFloat(argument(mongo.Command, "--wiredTigerCacheSizeGB"), 64)
	if err != nil || gigabytes*(1<<30) > float64(mongo.MemLimit)/2 {
		t.Errorf("a cache of %v GB in %d bytes of memory (%v)", gigabytes, mongo.MemLimit, err)
	}
}

func argument(command []string, name string) string {
	if n := slices.Index(command, name); n >= 0 && n+1 < len(command) {
		return command[n+1]
	}
	return ""
}
