package compose_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

func TestCompose_PassesSettingsThatTheCommandKnowsAndEveryServerAmongThem(t *testing.T) {
	server := regexp.MustCompile(`_(URL|ENDPOINTS)$`)
	shop, _, _ := ours(t, project(t))
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

// A published port is no use of a server: it runs for those that name it, and they
// start when it is ready.
func TestCompose_EveryServerIsNamedByServicesThatWaitForIt(t *testing.T) {
	shop, _, servers := ours(t, project(t))
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
				t.Errorf("%s is told of %s and does not wait for it", s.Name, server.Name)
			}
		}
		if named == 0 {
			t.Errorf("%s is started, and no service is told its address", server.Name)
		}
	}
}

// names says that a setting of s holds the server's address.
func names(s types.ServiceConfig, server string) bool {
	for _, value := range s.Environment {
		if value != nil && regexp.MustCompile(`(^|[/@,])`+server+`:\d+`).MatchString(*value) {
			return true
		}
	}
	return false
}

// Compose builds the images of the services that it was asked to start, and of
// those they wait for.
func TestCompose_EveryServiceOfTheShopWaitsForTheOneThatBuilds(t *testing.T) {
	p := project(t)
	builder := built(t, p).Name
	shop, _, _ := ours(t, p)
	for _, s := range shop {
		want := types.PullPolicyNever // the image is in no registry
		if s.Name == builder {
			want = types.PullPolicyBuild // else `up` runs the program of an older checkout
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

// A VOLUME of an image that nothing is mounted on is a new anonymous volume at each
// `up`. PostgreSQL 18 keeps its data in a folder of its version, and refuses to start
// when the folder below is mounted.
func TestCompose_MountsExactlyTheVolumesOfTheImages(t *testing.T) {
	images := map[string][]string{
		"postgres": {"/var/lib/postgresql"},
		"redis":    {"/data"},
		"etcd":     {"/var/lib/etcd"}, // no VOLUME, but the data is there
		"mongo":    {"/data/configdb", "/data/db"},
	}
	_, _, servers := ours(t, project(t))
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
		needs := 3 * time.Second // of a client in C or Go; `shop ping` waits two
		if s.HealthCheck.Test[1] == "mongosh" {
			needs = 30 * time.Second // seven were measured
		}
		if timeout := s.HealthCheck.Timeout; timeout == nil || time.Duration(*timeout) < needs {
			t.Errorf("%s: a health check has %v, want at least %v", s.Name, timeout, needs)
		}
		if s.HealthCheck.StartPeriod == nil || s.HealthCheck.StartInterval == nil {
			t.Errorf("%s: a check that fails while the server starts counts, or the next one is an interval later", s.Name)
		}
	}
}

// In protected mode Redis answers its own machine and refuses the shop's replicas.
func TestCompose_RedisIsCheckedByTheAddressThatTheShopUses(t *testing.T) {
	redis := project(t).Services["redis"]
	if check := strings.Join(redis.HealthCheck.Test, " "); !strings.Contains(check, "redis-cli -h redis ping") {
		t.Errorf("the health check asks %s", check)
	}
	if argument(redis.Command, "--protected-mode") != "no" {
		t.Errorf("only the official image lets the shop in: %v", redis.Command)
	}
}

// A soft or hard limit above the machine's own keeps the container from starting.
func TestCompose_AsksForNoLimitOfOpenFiles(t *testing.T) {
	for _, s := range project(t).Services {
		if len(s.Ulimits) > 0 {
			t.Errorf("%s: %v", s.Name, slices.Collect(maps.Keys(s.Ulimits)))
		}
	}
}

// `docker compose up` shows the keys, so the servers' logs must not bury them.
func TestCompose_UpShowsTheLogsOfReplicasMigrateAndSeed(t *testing.T) {
	for _, s := range project(t).Services {
		shown := s.Attach == nil || *s.Attach
		if want := strings.HasPrefix(s.Name, "shop") || oneShot(s); shown != want {
			t.Errorf("%s: its log is shown %v, want %v", s.Name, shown, want)
		}
	}
}

// In a container there is no `shop seed`: `docker compose run seed --rotate` is what works.
func TestCompose_SeedTakesFlags(t *testing.T) {
	seed := project(t).Services["seed"]
	if !slices.Equal(seed.Entrypoint, []string{"/shop", "seed"}) || len(seed.Command) > 0 {
		t.Errorf("entrypoint %v, command %v", seed.Entrypoint, seed.Command)
	}
}

// Periodic compaction keeps between one and two retentions of history, a kilobyte of
// memory for each transfer of that time.
func TestCompose_EtcdForgetsItsHistoryBeforeItsMemoryIsFull(t *testing.T) {
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
	if etcd.Environment["GOMEMLIMIT"] == nil { // else garbage takes as much again
		t.Error("the collector does not know the container's memory")
	}
	if flags["--quota-backend-bytes"] == "" {
		t.Errorf("no quota is named: %v", etcd.Command)
	}
}
