package compose_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// Goal: what is known to break people's compose files is checked without an
// engine. Method: the file is loaded by the library that Docker Compose uses.

// load reads compose.yaml with these settings and no others.
func load(t *testing.T, env ...string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithEnv(env), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(context.Background())
}

const password = "SHOP_POSTGRES_PASSWORD=secret"

func project(t *testing.T, env ...string) *types.Project {
	t.Helper()
	p, err := load(t, append(env, password)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ours are the services that run the shop's program.
func ours(p *types.Project) []types.ServiceConfig {
	var all []types.ServiceConfig
	for _, s := range p.Services {
		if s.Build != nil {
			all = append(all, s)
		}
	}
	return all
}

func oneShot(s types.ServiceConfig) bool { return s.Restart == types.RestartPolicyNo }

func TestCompose_PassesOnlySettingsThatTheShopKnows(t *testing.T) {
	services := ours(project(t))
	if len(services) != 4 {
		t.Fatalf("%d services run the shop, want serve, batch, migrate and seed", len(services))
	}
	for _, s := range services {
		command := []string{"serve"} // the image's
		if len(s.Command) > 0 {
			command = s.Command
		}
		known := settings(t, command[0])
		var passed int
		for name := range s.Environment {
			if !strings.HasPrefix(name, "SHOP_") {
				continue
			}
			if passed++; !slices.Contains(known, name) {
				t.Errorf("%s passes %s, which `shop %s` does not know; it knows %v", s.Name, name, command[0], known)
			}
		}
		if passed == 0 {
			t.Errorf("%s passes no setting at all", s.Name)
		}
	}
}

// settings asks the shop itself.
func settings(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.Command("go", "run", "../cmd/shop", command, "--help").Output()
	if err != nil {
		t.Fatalf("go run ../cmd/shop %s --help: %v", command, err)
	}
	var names []string
	for _, match := range regexp.MustCompile(`\$(SHOP_[A-Z_]+)`).FindAllStringSubmatch(string(out), -1) {
		names = append(names, match[1])
	}
	return names
}

func TestCompose_RefusesToStartWithoutAPassword(t *testing.T) {
	for _, env := range [][]string{nil, {"SHOP_POSTGRES_PASSWORD="}} {
		_, err := load(t, env...)
		if err == nil || !strings.Contains(err.Error(), "openssl rand") {
			t.Errorf("with %v: %v, want an error that says how to make one", env, err)
		}
	}
}

func TestCompose_HoldsNoSecret(t *testing.T) {
	content, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`PASSWORD: [^$\n].*|://\w+:[^$\s]+@`).FindAllString(string(content), -1) {
		t.Errorf("a secret stands in the file: %s", match)
	}
}

func TestCompose_ImagesArePinnedAndNotBitnamis(t *testing.T) {
	pinned := regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?(-[\w.]+)?(@sha256:[0-9a-f]{64})?$`)
	for _, s := range project(t).Services {
		if s.Build == nil && !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %s is not pinned", s.Name, s.Image)
		}
		if strings.Contains(s.Image, "latest") || strings.Contains(s.Image, "bitnami") {
			t.Errorf("%s: image %s", s.Name, s.Image)
		}
	}
	const mirror = "mirror.example/redis:1.2"
	if got := project(t, "REDIS_IMAGE="+mirror).Services["redis"].Image; got != mirror {
		t.Errorf("REDIS_IMAGE is not used: %s", got)
	}
}

func TestCompose_EveryServiceHasAMemoryLimitAndSaysWhenItIsReady(t *testing.T) {
	p := project(t)
	for _, s := range p.Services {
		if s.MemLimit <= 0 {
			t.Errorf("%s has no memory limit", s.Name)
		}
		if s.ContainerName != "" {
			t.Errorf("%s has a fixed name: two checkouts collide", s.Name)
		}
		asked := s.HealthCheck != nil && !s.HealthCheck.Disable && len(s.HealthCheck.Test) > 1
		if wanted := !oneShot(s) && used(p, s); asked != wanted {
			t.Errorf("%s: one-shot %v, used %v, health check %v", s.Name, oneShot(s), used(p, s), s.HealthCheck)
		}
	}
}

// used says that somebody waits for it, or reaches it from outside: only then is
// there something to be ready for.
func used(p *types.Project, s types.ServiceConfig) bool {
	for _, other := range p.Services {
		if _, waits := other.DependsOn[s.Name]; waits {
			return true
		}
	}
	return len(s.Ports) > 0
}

// What it waits for must be more than a start.
func TestCompose_WaitsForReadinessNotForStarts(t *testing.T) {
	p := project(t)
	for _, s := range p.Services {
		for name, d := range s.DependsOn {
			want := types.ServiceConditionHealthy
			if oneShot(p.Services[name]) {
				want = types.ServiceConditionCompletedSuccessfully
			}
			if d.Condition != want {
				t.Errorf("%s waits for %s: %s, want %s", s.Name, name, d.Condition, want)
			}
		}
	}
	shop := p.Services["shop"]
	if shop.GetScale() != 3 {
		t.Errorf("%d replicas, want 3", shop.GetScale())
	}
	for _, name := range []string{"postgres", "redis", "etcd", "migrate", "seed"} {
		if _, ok := shop.DependsOn[name]; !ok {
			t.Errorf("the shop does not wait for %s", name)
		}
	}
}

// PostgreSQL 18 keeps its data in a folder of its version, and refuses to start
// when the old path is mounted.
func TestCompose_MountsPostgresAboveItsVersion(t *testing.T) {
	volumes := project(t).Services["postgres"].Volumes
	if len(volumes) != 1 || volumes[0].Target != "/var/lib/postgresql" {
		t.Errorf("%v", volumes)
	}
}
