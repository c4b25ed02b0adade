// SPDX-License-Identifier: MIT

package compose_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// `docker compose` finds the same file in the root of the repository and in compose/. The options are
// those of Docker Compose, in its order.
func TestCompose_IsFoundAtTheRoot(t *testing.T) {
	find := func(folder string) *types.Project {
		t.Chdir(folder)
		options, err := cli.NewProjectOptions(
			nil, cli.WithWorkingDirectory(""), cli.WithEnvFiles(), cli.WithDotEnv, cli.WithConfigFileEnv, cli.WithDefaultConfigPath,
			cli.WithEnvFiles(), cli.WithDotEnv,
		)
		if err != nil {
			t.Fatal(err)
		}
		p, err := options.LoadProject(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	here, root := find("."), find("..")
	if here.Name != root.Name || !slices.Equal(here.ComposeFiles, root.ComposeFiles) || len(root.Services) == 0 {
		t.Errorf("here: %s %v; at the root: %s %v", here.Name, here.ComposeFiles, root.Name, root.ComposeFiles)
	}
}

func TestCompose_ProfilesHaveTheirServices(t *testing.T) {
	base := project(t).Services
	for name, want := range map[string][]string{
		"lab":  {"lab", "lab-migrate", "lab-proxy", "lab-seed"},
		"obs":  {"grafana", "jaeger", "prometheus"},
		"full": {"mysql", "mysql-secrets", "redis1", "redis2", "sentinel1", "sentinel2", "sentinel3", "zookeeper"},
		"ha": {
			"ha", "ha-batch", "ha-etcd1", "ha-etcd2", "ha-etcd3", "ha-migrate", "ha-mongo1", "ha-mongo2", "ha-mongo3", "ha-postgres1", "ha-postgres2",
			"ha-secrets", "ha-seed", "ha1", "ha2", "redis1", "redis2", "sentinel1", "sentinel2", "sentinel3",
		},
		"prove": {"prove"},
	} {
		var added []string
		for service := range profile(t, []string{name}).Services {
			if _, inBase := base[service]; !inBase {
				added = append(added, service)
			}
		}
		if slices.Sort(added); !slices.Equal(added, want) {
			t.Errorf("profile %s adds %v, want %v", name, added, want)
		}
	}
}

// What needs to write has a volume or a folder in memory.
func TestCompose_TheProgramAndItsNeighboursMayDoLittle(t *testing.T) {
	for _, s := range everything(t).Services {
		if s.Privileged || len(s.CapAdd) > 0 || s.NetworkMode == "host" || s.Pid != "" {
			t.Errorf("%s has more rights than a container needs", s.Name)
		}
		if strings.Contains(s.Image, "postgres:") || strings.Contains(s.Image, "mongo:") || strings.Contains(s.Image, "redis:") ||
			strings.Contains(s.Image, "etcd:") || strings.Contains(s.Image, "mysql:") || strings.Contains(s.Image, "zookeeper:") {
			continue // their images begin as root and write to folders of their own
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: read-only %v, without %v, %v", s.Name, s.ReadOnly, s.CapDrop, s.SecurityOpt)
		}
	}
}

// A mount of a path that does not exist becomes an empty folder, owned by root.
func TestCompose_MountsFilesThatExist(t *testing.T) {
	var mounted int
	for _, s := range everything(t).Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			mounted++
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s, read-only %v: %v", s.Name, v.Source, v.ReadOnly, err)
			}
			config := regexp.MustCompile(`(?:-f |--config\.file=)` + v.Target + `/(\S+)`).FindStringSubmatch(strings.Join(s.Command, " "))
			if config == nil {
				continue
			}
			if _, err := os.Stat(filepath.Join(v.Source, config[1])); err != nil {
				t.Errorf("%s reads %s: %v", s.Name, config[1], err)
			}
		}
	}
	if mounted < 4 {
		t.Errorf("%d mounts: this tests nothing", mounted)
	}
}

// A proxy asks for the replicas by a name that they, and only they, have.
func TestCompose_ProxiesFindTheirReplicas(t *testing.T) {
	p := everything(t)
	config := read(t, "haproxy/haproxy.cfg")
	for name, want := range map[string][]string{"proxy": {"shop1", "shop2", "shop3"}, "ha": {"ha1", "ha2"}} {
		alias := *p.Services[name].Environment["REPLICAS"]
		var found []string
		for _, s := range p.Services {
			if n := s.Networks["default"]; n != nil && slices.Contains(n.Aliases, alias) {
				found = append(found, s.Name)
			}
		}
		if slices.Sort(found); !slices.Equal(found, want) {
			t.Errorf("%s: the name %s leads to %v, want %v", name, alias, found, want)
		}
		for _, replica := range want {
			if p.Services[name].DependsOn[replica].Condition != types.ServiceConditionHealthy {
				t.Errorf("%s prints its address before %s is ready", name, replica)
			}
		}
	}
	for _, line := range []string{`server-template shop 3 "${REPLICAS}:8080" check`, "option httpchk GET /readyz", "retry-on conn-failure"} {
		if !strings.Contains(config, line) {
			t.Errorf("haproxy.cfg lacks %s", line)
		}
	}
}

// Lab mode listens on loopback only. It is in the network of a proxy that forwards to it, not the other way round: a lab
// that is restarted or killed comes back to the network of its proxy. Its data are its own: strategies that oversell are
// allowed there.
func TestCompose_LabIsOnLoopbackWithDataOfItsOwn(t *testing.T) {
	p := everything(t)
	lab, proxy, shop := p.Services["lab"], p.Services["lab-proxy"], p.Services["shop1"]
	if listen := lab.Environment["SHOP_LISTEN"]; listen == nil || *listen != "127.0.0.1:8080" {
		t.Errorf("the lab listens on %v", listen)
	}
	if lab.NetworkMode != "service:lab-proxy" || len(lab.Ports) > 0 || len(proxy.Ports) != 1 || proxy.Ports[0].Target != 8081 {
		t.Errorf("network %s, ports %v and %v", lab.NetworkMode, lab.Ports, proxy.Ports)
	}
	if !lab.DependsOn["lab-proxy"].Restart {
		t.Error("a restart of lab-proxy leaves the lab in the network of the one before")
	}
	config := read(t, "haproxy/lab.cfg")
	for _, line := range []string{"bind :8081", "server lab 127.0.0.1:8080"} {
		if !strings.Contains(config, line) {
			t.Errorf("lab.cfg lacks %s", line)
		}
	}
	for _, name := range []string{"SHOP_POSTGRES_URL", "SHOP_MONGO_URL", "SHOP_REDIS_URL"} {
		if *lab.Environment[name] == *shop.Environment[name] {
			t.Errorf("the lab and the shop share %s", name)
		}
	}
	if !lab.ReadOnly || !slices.Contains(lab.Tmpfs, "/tmp:mode=1777") {
		t.Errorf("read-only %v, folders in memory %v: the measurement of file locks needs /tmp", lab.ReadOnly, lab.Tmpfs)
	}
	if prefix := lab.Environment["SHOP_LOCK_PREFIX"]; prefix == nil || *prefix == "shop" {
		t.Errorf("the lab's locks in etcd are the shop's: %v", prefix)
	}
	for _, s := range p.Services {
		if inLab := slices.Contains(s.Command, "--lab") || s.Environment["SHOP_LAB"] != nil; inLab != (s.Name == "lab") {
			t.Errorf("%s: lab mode %v", s.Name, inLab)
		}
	}
}

// `docker compose up ha` starts what the service waits for: none of the other shop's servers.
func TestCompose_HaStartsNothingOfTheOtherShop(t *testing.T) {
	p := profile(t, []string{"ha"})
	base := project(t)
	var visit func(string)
	seen := map[string]bool{}
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if _, other := base.Services[name]; other && name != "program" {
			t.Errorf("`up ha` starts %s", name)
		}
		for _, v := range p.Services[name].Volumes {
			if _, other := base.Volumes[v.Source]; other && !strings.HasPrefix(v.Source, "ha-") && v.Type == types.VolumeTypeVolume {
				t.Errorf("%s uses the volume %s of the other shop", name, v.Source)
			}
		}
		for next := range p.Services[name].DependsOn {
			visit(next)
		}
	}
	visit("ha")
	if len(seen) < 15 {
		t.Errorf("`up ha` starts only %v", seen)
	}
}

// The standby depends on the primary, which a fail-over removes: `start` refuses then ("missing dependency").
func TestCompose_TheStandbyStartsWithoutThePrimary(t *testing.T) {
	if _, waits := everything(t).Services["ha-postgres2"].DependsOn["ha-postgres1"]; !waits {
		t.Fatal("ha-postgres2 does not wait for ha-postgres1: docs/docker.md need not say --no-deps")
	}
	page := read(t, "../docs/docker.md")
	remove := strings.Index(page, "docker compose rm --stop --force ha-postgres1")
	start := strings.Index(page, "docker compose up --detach --no-deps ha-postgres2 ")
	promote := strings.Index(page, "docker compose exec ha-postgres2 pg_ctl promote")
	if remove < 0 || start < remove || promote < start {
		t.Errorf("docs/docker.md removes the primary at %d, starts the standby at %d, promotes it at %d", remove, start, promote)
	}
}

// `run -v FOLDER:/report` replaces a volume, but not an entry of tmpfs: moby v2 refuses both at one folder ("Duplicate mount point").
func TestCompose_AFolderReplacesTheReportInMemory(t *testing.T) {
	prove := withProfile(t, "prove", "prove")
	i := slices.IndexFunc(prove.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == "/report" })
	if len(prove.Tmpfs) > 0 || i < 0 {
		t.Fatalf("tmpfs %v, volumes %v: want /report among the volumes", prove.Tmpfs, prove.Volumes)
	}
	if v := prove.Volumes[i]; v.Type != types.VolumeTypeTmpfs || v.Tmpfs == nil || v.Tmpfs.Mode != 0o1777 {
		t.Errorf("/report is %+v, want memory that each user may write to", v)
	}
}

// The tests of locking/mysqllock and locking/zklock connect from the host.
func TestCompose_ServersOfTheTestsStoreNothing(t *testing.T) {
	for name, image := range map[string]string{"mysql": `^mysql:8\.4\.\d+$`, "zookeeper": `^zookeeper:3\.9\.\d+$`} {
		s := withProfile(t, "full", name)
		stores := slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool { return !v.ReadOnly })
		if !regexp.MustCompile(image).MatchString(s.Image) || stores || len(s.Tmpfs) == 0 {
			t.Errorf("%s: image %s, volumes %v, in memory %v", name, s.Image, s.Volumes, s.Tmpfs)
		}
		if check := s.HealthCheck; check == nil || !strings.Contains(strings.Join(check.Test, " "), "127.0.0.1") {
			t.Errorf("%s: health check %v", name, check)
		}
	}
}

// docs/docker.md says how much memory each profile may take, and names its pages.
func TestCompose_DocsSayTheMemoryAndThePortsOfEachProfile(t *testing.T) {
	page := read(t, "../docs/docker.md")
	row := regexp.MustCompile(`(?m)^\| (?:none|` + "`(\\w+)`" + `) \|.*\|(.*)\| (\d+) MiB \|$`)
	rows := row.FindAllStringSubmatch(page, -1)
	if len(rows) != 6 {
		t.Fatalf("%d rows, want six", len(rows))
	}
	base := project(t).Services
	for _, r := range rows {
		p := project(t)
		if r[1] != "" {
			p = profile(t, []string{r[1]})
		}
		var sum types.UnitBytes
		for name, s := range p.Services {
			if _, inBase := base[name]; r[1] != "" && inBase || oneShot(s) && name != "prove" {
				continue
			}
			sum += s.MemLimit
			for _, port := range s.Ports {
				if s.HealthCheck.Test[1] == "wget" && !strings.Contains(r[2], port.Published) {
					t.Errorf("profile %s: the page does not name port %s of %s", r[1], port.Published, name)
				}
			}
		}
		if got := strconv.FormatInt(int64(sum>>20), 10); got != r[3] {
			t.Errorf("profile %q may take %s MiB, the page says %s", r[1], got, r[3])
		}
	}
}

// Kubernetes passes the same settings.
func TestKubernetes_PassesOnlyKnownSettings(t *testing.T) {
	known := settings(t, "serve")
	passed := regexp.MustCompile(`\b(SHOP_[A-Z_]+)[:=]`).FindAllStringSubmatch(read(t, "kubernetes/shop.yaml"), -1)
	if len(passed) < 8 {
		t.Fatalf("%d settings: this tests nothing", len(passed))
	}
	for _, name := range passed {
		if !slices.Contains(known, name[1]) {
			t.Errorf("there is no setting %s", name[1])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
