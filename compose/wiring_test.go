// SPDX-License-Identifier: MIT

package compose_test

import (
	"maps"
	"net"
	"os"
	"path/filepath"
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
	p := everything(t)
	shop, _, _ := services(t, p)
	settingsOf := map[string][]string{}
	for _, s := range shop {
		if s.Build != nil {
			continue // it only prints its version
		}
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

// A server must have users among the services, and they must wait until it is ready. Sentinels tell
// where redis1 and redis2 are.
func TestCompose_EveryServerIsNamedByServicesThatWaitForIt(t *testing.T) {
	shop, _, servers := services(t, profile(t, []string{"ha", "lab"}))
	for _, server := range servers {
		if server.Name == "redis1" || server.Name == "redis2" {
			continue
		}
		var named int
		for _, s := range shop {
			if !names(s, server.Name) {
				continue
			}
			named++
			if _, waits := s.DependsOn[server.Name]; !waits && s.Name != "ha-migrate" && s.Name != "ha-seed" { // the members of a set wait for one another
				t.Errorf("%s has the address of %s and does not wait for it", s.Name, server.Name)
			}
		}
		if named == 0 {
			t.Errorf("%s is started, and no service has its address", server.Name)
		}
	}
	if _, _, servers := services(t, project(t)); len(servers) != 4 {
		t.Errorf("%d servers, want PostgreSQL, Redis, etcd and MongoDB", len(servers))
	}
}

// names reports whether a setting of s holds the server's address.
func names(s types.ServiceConfig, server string) bool {
	for _, value := range s.Environment {
		if value != nil && regexp.MustCompile(`(^|[/@,=])`+server+`:\d+`).MatchString(*value) {
			return true
		}
	}
	return false
}

// `up SERVICE` builds the images of that service and of those that it waits for.
func TestCompose_EveryServiceOfTheShopWaitsForTheOneThatBuilds(t *testing.T) {
	builder := built(t, project(t)).Name
	shop, _, _ := services(t, everything(t))
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
	one, other := everything(t), everything(t, "SHOP_PORT_PREFIX=181")
	if one.Name == other.Name {
		t.Errorf("both are project %s", one.Name)
	}
	for name, s := range one.Services {
		if s.PullPolicy != "" && s.Image == other.Services[name].Image {
			t.Errorf("both build %s", s.Image)
		}
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
		"postgres":   {"/secrets", "/var/lib/postgresql"},
		"redis":      {"/data"},
		"etcd":       {"/var/lib/etcd"}, // not a VOLUME, but the data is there
		"mongo":      {"/data/configdb", "/data/db"},
		"mysql":      {"/secrets", "/var/lib/mysql"},
		"zookeeper":  {"/data", "/datalog", "/logs"},
		"prometheus": {"/etc/prometheus", "/prometheus"},
		"grafana":    {"/etc/grafana/dashboards", "/etc/grafana/provisioning", "/tmp", "/var/lib/grafana"},
		"jaeger":     {"/tmp"},
	}
	repository := regexp.MustCompile(`(\w+):[^:/]+$`)
	_, _, servers := services(t, everything(t))
	for _, s := range servers {
		var mounted []string
		for _, memory := range s.Tmpfs {
			folder, _, _ := strings.Cut(memory, ":") // and its options
			mounted = append(mounted, folder)
		}
		for _, v := range s.Volumes {
			if mounted = append(mounted, v.Target); v.Source == "" {
				t.Errorf("%s: the volume at %s has no name", s.Name, v.Target)
			}
		}
		if want := images[repository.FindStringSubmatch(s.Image)[1]]; !slices.Equal(slices.Sorted(slices.Values(mounted)), want) {
			t.Errorf("%s mounts %v, want %v", s.Name, mounted, want)
		}
	}
}

// Grafana opens on a dashboard that is mounted.
func TestCompose_GrafanaHasAHome(t *testing.T) {
	grafana := everything(t).Services["grafana"]
	home := grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	for _, v := range grafana.Volumes {
		if name, inside := strings.CutPrefix(*home, v.Target+"/"); inside {
			if _, err := os.Stat(filepath.Join(v.Source, name)); err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Errorf("no mount has %s", *home)
}

func TestCompose_HealthChecksHaveTheTimeThatTheirProgramsNeed(t *testing.T) {
	for _, s := range everything(t).Services {
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
	for _, s := range everything(t).Services {
		if len(s.Ulimits) > 0 {
			t.Errorf("%s sets limits: %v", s.Name, slices.Collect(maps.Keys(s.Ulimits)))
		}
	}
}

// `docker compose up` prints the addresses of pages and nothing else.
func TestCompose_UpShowsTheLogsOfProxiesOnly(t *testing.T) {
	for _, s := range everything(t).Services {
		shown := s.Attach == nil || *s.Attach
		if shown != isProxy(s) {
			t.Errorf("%s: log shown: %v", s.Name, shown)
		}
		if printed := strings.Join(s.Command, " "); isProxy(s) && !(strings.Contains(printed, ": http://127.0.0.1:$PORT/\"") && strings.Contains(printed, " exec haproxy -q ")) {
			t.Errorf("%s prints %v", s.Name, s.Command)
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

// A shell takes the output of `$(docker compose run …)`. With its dependencies, `run` builds the program first, and Compose
// 5.5.1 refuses to build in a terminal whose output goes elsewhere: "failed to get console".
func TestCompose_CommandsWhoseOutputIsTakenBuildNothing(t *testing.T) {
	var seen int
	for _, file := range []string{
		"compose.yaml", "ha.yaml", "obs.yaml", "haproxy/index.html", "../docs/docker.md", "../docs/ci.md", "../.github/workflows/ci.yaml",
	} {
		for _, command := range regexp.MustCompile(`\$\(docker compose run [^)]*\)`).FindAllString(read(t, file), -1) {
			if seen++; !strings.Contains(command, " --no-deps ") {
				t.Errorf("%s: %s starts and builds what the service depends on", file, command)
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d commands: this tests nothing", seen)
	}
}

// Periodic compaction keeps one to two retention periods of history, and each transfer
// of that time takes a kilobyte of memory.
func TestCompose_EtcdCompactsItsHistoryBeforeItsMemoryIsFull(t *testing.T) {
	_, _, servers := services(t, everything(t))
	var checked int
	for _, etcd := range servers {
		if !strings.Contains(etcd.Image, "etcd:") {
			continue
		}
		checked++
		flags := map[string]string{}
		for _, argument := range etcd.Command {
			name, value, _ := strings.Cut(argument, "=")
			flags[name] = value
		}
		retention, err := time.ParseDuration(flags["--auto-compaction-retention"])
		const perSecond = 1000
		history := types.UnitBytes(2*retention.Seconds()*perSecond) << 10
		if flags["--auto-compaction-mode"] != "periodic" || err != nil || retention <= 0 || history > etcd.MemLimit/2 {
			t.Errorf("%s: %d transfers a second leave %d bytes of history in %d: %v", etcd.Name, perSecond, history, etcd.MemLimit, etcd.Command)
		}
		if etcd.Environment["GOMEMLIMIT"] == nil { // without it garbage doubles the heap
			t.Errorf("%s has no GOMEMLIMIT", etcd.Name)
		}
		if flags["--quota-backend-bytes"] == "" {
			t.Errorf("%s: no quota is set: %v", etcd.Name, etcd.Command)
		}
	}
	if checked != 4 {
		t.Errorf("%d servers of etcd, want that of the shop, and three of the profile ha", checked)
	}
}

func TestCompose_PortsAreOnLoopbackAndMoveWithOneVariable(t *testing.T) {
	ports := []string{"06", "21", "30", "80", "84", "85", "86", "90"} // 8080 and 9090 are `make run`'s
	for setting, prefix := range map[string]string{"": "180", "SHOP_PORT_PREFIX=181": "181"} {
		var published []string
		for _, s := range everything(t, setting).Services {
			for _, p := range s.Ports {
				if ip := net.ParseIP(p.HostIP); ip == nil || !ip.IsLoopback() {
					t.Errorf("%s publishes %s on %q, want a loopback address", s.Name, p.Published, p.HostIP)
				}
				port, moved := strings.CutPrefix(p.Published, prefix)
				if !moved {
					t.Errorf("%s publishes %s, want %s…", s.Name, p.Published, prefix)
				}
				if published = append(published, port); isProxy(s) && *s.Environment["PORT"] != p.Published {
					t.Errorf("%s prints the port %s, and publishes %s", s.Name, *s.Environment["PORT"], p.Published)
				}
			}
		}
		if slices.Sort(published); !slices.Equal(published, ports) {
			t.Errorf("with %q the ports are %v, want %v", setting, published, ports)
		}
		if up := project(t, setting).Services; len(up["proxy"].Ports) != 1 {
			t.Errorf("`up` publishes %v", up["proxy"].Ports)
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
	prove := withProfile(t, "prove", "prove", "SHOP_KEY_ALICE=a", "SHOP_KEY_BOB=b")
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
	file, err := target.Read(prove.Volumes[i].Source, target.Override{}, env)
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
