package compose_test

import (
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"shop/loadtest/target"
)

func TestCompose_PassesOnlyKnownSettingsAndTheAddressOfEveryServer(t *testing.T) {
	server := regexp.MustCompile(`_(URL|ENDPOINTS)$`)
	shop, _, _ := services(t, project(t))
	settingsOf := map[string][]string{}
	for _, s := range shop {
		if settingsOf[command(s)] == nil {
			settingsOf[command(s)] = settings(t, command(s))
		}
		known := settingsOf[command(s)]
		for name := range s.Environment {
			if strings.HasPrefix(name, "SHOP_") && !slices.Contains(known, name) {
				t.Errorf("%s passes %s, which `shop %s` does not know; it knows %v", s.Name, name, command(s), known)
			}
		}
		for _, name := range known {
			// There is no bonus service here.
			if _, passed := s.Environment[name]; server.MatchString(name) && name != "SHOP_BONUS_URL" && !passed {
				t.Errorf("%s does not pass %s, which `shop %s` knows", s.Name, name, command(s))
			}
		}
	}
}

// A server must have users among the services, and they must wait until it is ready.
func TestCompose_EveryServerIsNamedByServicesThatWaitForIt(t *testing.T) {
	shop, _, servers := services(t, project(t))
	if len(servers) != 4 {
		t.Errorf("%d servers, want PostgreSQL, Redis, etcd and MongoDB", len(servers))
	}
	for _, server := range servers {
		var named int
		for _, s := range shop {
			if !names(s, server.Name) {
				continue
			}
			named++
			if _, waits := s.DependsOn[server.Name]; !waits {
				t.Errorf("%s has the address of %s and does not wait for it", s.Name, server.Name)
			}
		}
		if named == 0 {
			t.Errorf("%s is started, and no service has its address", server.Name)
		}
	}
}

// names reports whether a setting of s holds the server's address.
func names(s types.ServiceConfig, server string) bool {
	for _, value := range s.Environment {
		if value != nil && regexp.MustCompile(`(^|[/@,])`+server+`:\d+`).MatchString(*value) {
			return true
		}
	}
	return false
}

// `up SERVICE` builds the images of that service and of those that it waits for.
func TestCompose_EveryServiceOfTheShopWaitsForTheOneThatBuilds(t *testing.T) {
	p := project(t)
	builder := built(t, p).Name
	shop, _, _ := services(t, p)
	for _, s := range shop {
		want := types.PullPolicyNever // the image is in no registry
		if s.Name == builder {
			want = types.PullPolicyBuild // without it `up` runs the program of an older checkout
		}
		if s.PullPolicy != want {
			t.Errorf("%s: pull_policy %q, want %q", s.Name, s.PullPolicy, want)
		}
		if _, waits := s.DependsOn[builder]; s.Name != builder && !waits {
			t.Errorf("%s does not wait for %s, which builds its image", s.Name, builder)
		}
	}
}

func TestCompose_AnotherPrefixIsAnotherShop(t *testing.T) {
	one, other := project(t), project(t, "SHOP_PORT_PREFIX=181")
	if one.Name == other.Name || built(t, one).Image == built(t, other).Image {
		t.Errorf("both are project %s with image %s", one.Name, built(t, one).Image)
	}
	for key, v := range one.Volumes {
		if v.Name == other.Volumes[key].Name || v.External {
			t.Errorf("both have the volume %s", v.Name)
		}
	}
	for key, n := range one.Networks {
		if n.Name == other.Networks[key].Name || n.External {
			t.Errorf("both have the network %s", n.Name)
		}
	}
}

// An image's VOLUME without a mount becomes a new anonymous volume at each `up`.
// PostgreSQL 18 keeps its data in a subfolder named after its version, and refuses to
// start if the old data folder is mounted.
func TestCompose_MountsExactlyTheVolumesOfTheImages(t *testing.T) {
	images := map[string][]string{
		"postgres": {"/var/lib/postgresql"},
		"redis":    {"/data"},
		"etcd":     {"/var/lib/etcd"}, // not a VOLUME, but the data is there
		"mongo":    {"/data/configdb", "/data/db"},
	}
	_, _, servers := services(t, project(t))
	for _, s := range servers {
		mounted := slices.Clone(s.Tmpfs)
		for _, v := range s.Volumes {
			if mounted = append(mounted, v.Target); v.Source == "" {
				t.Errorf("%s: the volume at %s has no name", s.Name, v.Target)
			}
		}
		if slices.Sort(mounted); !slices.Equal(mounted, images[s.Name]) {
			t.Errorf("%s mounts %v, want %v", s.Name, mounted, images[s.Name])
		}
	}
}

func TestCompose_HealthChecksHaveTheTimeThatTheirProgramsNeed(t *testing.T) {
	for _, s := range project(t).Services {
		if s.HealthCheck == nil {
			continue
		}
		needs := 3 * time.Second // for a client in C or Go; `shop ping` waits two
		if s.HealthCheck.Test[1] == "mongosh" {
			needs = 30 * time.Second // seven seconds were measured
		}
		if timeout := s.HealthCheck.Timeout; timeout == nil || time.Duration(*timeout) < needs {
			t.Errorf("%s: the health check's timeout is %v, want at least %v", s.Name, timeout, needs)
		}
		if s.HealthCheck.StartPeriod == nil || s.HealthCheck.StartInterval == nil {
			t.Errorf("%s: without start_period and start_interval a failed check during the start counts, and the next one comes an interval later", s.Name)
		}
	}
}

// In protected mode Redis replies only to its own host and refuses the shop's replicas.
func TestCompose_RedisIsCheckedAtTheAddressThatTheShopUses(t *testing.T) {
	redis := project(t).Services["redis"]
	if check := strings.Join(redis.HealthCheck.Test, " "); !strings.Contains(check, "redis-cli -h redis ping") {
		t.Errorf("the health check is %s", check)
	}
	if argument(redis.Command, "--protected-mode") != "no" {
		t.Errorf("protected mode is not off; images other than the official one refuse the shop: %v", redis.Command)
	}
}

// A container with a soft or hard limit above the machine's own does not start.
func TestCompose_AsksForNoLimitOfOpenFiles(t *testing.T) {
	for _, s := range project(t).Services {
		if len(s.Ulimits) > 0 {
			t.Errorf("%s sets limits: %v", s.Name, slices.Collect(maps.Keys(s.Ulimits)))
		}
	}
}

// `docker compose up` prints the keys; the servers' logs would hide them.
func TestCompose_UpShowsTheLogsOfReplicasMigrateAndSeed(t *testing.T) {
	for _, s := range project(t).Services {
		shown := s.Attach == nil || *s.Attach
		if want := strings.HasPrefix(s.Name, "shop") || oneShot(s); shown != want {
			t.Errorf("%s: log shown: %v, want %v", s.Name, shown, want)
		}
	}
}

// `docker compose run seed --rotate` must run `shop seed --rotate`.
func TestCompose_SeedTakesFlags(t *testing.T) {
	seed := project(t).Services["seed"]
	if !slices.Equal(seed.Entrypoint, []string{"/shop", "seed"}) || len(seed.Command) > 0 {
		t.Errorf("entrypoint %v, command %v", seed.Entrypoint, seed.Command)
	}
}

// Periodic compaction keeps one to two retention periods of history, and each transfer
// of that time takes a kilobyte of memory.
func TestCompose_EtcdCompactsItsHistoryBeforeItsMemoryIsFull(t *testing.T) {
	etcd := project(t).Services["etcd"]
	flags := map[string]string{}
	for _, argument := range etcd.Command {
		name, value, _ := strings.Cut(argument, "=")
		flags[name] = value
	}
	retention, err := time.ParseDuration(flags["--auto-compaction-retention"])
	const perSecond = 1000
	history := types.UnitBytes(2*retention.Seconds()*perSecond) << 10
	if flags["--auto-compaction-mode"] != "periodic" || err != nil || retention <= 0 || history > etcd.MemLimit/2 {
		t.Errorf("%d transfers a second leave %d bytes of history in %d: %v", perSecond, history, etcd.MemLimit, etcd.Command)
	}
	if etcd.Environment["GOMEMLIMIT"] == nil { // without it garbage doubles the heap
		t.Error("etcd has no GOMEMLIMIT")
	}
	if flags["--quota-backend-bytes"] == "" {
		t.Errorf("no quota is set: %v", etcd.Command)
	}
}

func TestCompose_PortsAreOnLoopbackAndMoveWithOneVariable(t *testing.T) {
	want := map[string][]string{
		"":                     {"18017", "18080", "18081", "18082", "18090", "18091", "18092"}, // 8080 and 9090 are `make run`'s
		"SHOP_PORT_PREFIX=181": {"18117", "18180", "18181", "18182", "18190", "18191", "18192"},
	}
	for setting, ports := range want {
		var published []string
		for _, s := range project(t, setting).Services {
			for _, p := range s.Ports {
				if ip := net.ParseIP(p.HostIP); ip == nil || !ip.IsLoopback() {
					t.Errorf("%s publishes %s on %q, want a loopback address", s.Name, p.Published, p.HostIP)
				}
				published = append(published, p.Published)
			}
		}
		if slices.Sort(published); !slices.Equal(published, ports) {
			t.Errorf("with %q the ports are %v, want %v", setting, published, ports)
		}
	}
}

// A set initiated without an address names its member by the container's id, which
// other containers cannot resolve. An open port does not mean that there is a primary.
func TestCompose_MongoIsAPrimaryUnderAReachableAddress(t *testing.T) {
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

// By default the cache takes half of the memory. mongosh, which the health check runs in
// the same container, needs memory too.
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

// `up` sends no load; `run prove` sends it to each replica's address inside the network.
func TestCompose_ProveLoadsEveryReplicaOnlyOnRequest(t *testing.T) {
	prove := withProfile(t, "prove", "SHOP_KEY_ALICE=a", "SHOP_KEY_BOB=b")
	if prove.MemLimit <= 0 || !oneShot(prove) || argument(prove.Entrypoint, "/prove") != "--target" {
		t.Errorf("%+v", prove)
	}
	if prove.Build == nil || prove.Build.Target != "prove" || prove.Image == built(t, project(t)).Image {
		t.Errorf("%s is built from the stage %+v: the shop's image must not contain prove", prove.Image, prove.Build)
	}
	mounted := argument(prove.Entrypoint, "--target")
	i := slices.IndexFunc(prove.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == mounted })
	if i < 0 {
		t.Fatalf("%s is not mounted: %+v", mounted, prove.Volumes)
	}
	env := func(name string) string {
		if value := prove.Environment[name]; value != nil {
			return *value
		}
		return ""
	}
	file, err := target.Read(prove.Volumes[i].Source, env)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	_, replicas, _ := services(t, project(t))
	for _, replica := range replicas {
		want = append(want, "http://"+replica.Name+":8080")
		if d := prove.DependsOn[replica.Name]; d.Condition != types.ServiceConditionHealthy {
			t.Errorf("it does not wait until %s is ready", replica.Name)
		}
	}
	slices.Sort(want)
	if !slices.Equal(file.Services, want) || len(want) != 3 {
		t.Errorf("it loads %v, want %v", file.Services, want)
	}
}
