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

func project(t *testing.T, env ...string) *types.Project {
	t.Helper()
	p, err := load(t, env...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// built is the service that builds the shop's image.
func built(t *testing.T, p *types.Project) types.ServiceConfig {
	t.Helper()
	var builders []types.ServiceConfig
	for _, s := range p.Services {
		if s.Build != nil {
			builders = append(builders, s)
		}
	}
	if len(builders) != 1 {
		t.Fatalf("%d services build an image: want one, else each build gives the tag another image, and every container is made anew", len(builders))
	}
	return builders[0]
}

// ours are the services that run the shop's program, those of its replicas, and the servers.
func ours(t *testing.T, p *types.Project) (shop, replicas, servers []types.ServiceConfig) {
	t.Helper()
	image := built(t, p).Image
	for _, s := range p.Services {
		if s.Image != image {
			servers = append(servers, s)
			continue
		}
		if shop = append(shop, s); command(s) == "serve" {
			replicas = append(replicas, s)
		}
	}
	return shop, replicas, servers
}

// command of the shop that the service runs.
func command(s types.ServiceConfig) string {
	switch {
	case len(s.Entrypoint) > 1:
		return s.Entrypoint[1]
	case len(s.Command) > 0:
		return s.Command[0]
	}
	return "serve" // the image's
}

func oneShot(s types.ServiceConfig) bool { return s.Restart == types.RestartPolicyNo }

func TestCompose_RunsThreeReplicasAndEachOtherCommandOnce(t *testing.T) {
	shop, _, _ := ours(t, project(t))
	var commands []string
	for _, s := range shop {
		if s.GetScale() != 1 {
			t.Errorf("%s has %d containers: they would swap their ports at a restart", s.Name, s.GetScale())
		}
		commands = append(commands, command(s))
	}
	slices.Sort(commands)
	if want := []string{"batch", "migrate", "seed", "serve", "serve", "serve"}; !slices.Equal(commands, want) {
		t.Errorf("the services run %v, want %v", commands, want)
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

// `ps` and `down` read the file as `up` does: a variable that is demanded is
// demanded by all of them.
func TestCompose_NeedsNoVariable(t *testing.T) {
	if _, err := load(t); err != nil {
		t.Error(err)
	}
	content, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`\$\{(\w+)(:-)?`).FindAllStringSubmatch(string(content), -1) {
		if match[1] != "COMPOSE_PROJECT_NAME" && match[2] == "" { // that one is always set
			t.Errorf("%s has no default", match[1])
		}
	}
}

// The password stands in the file: what it opens must not be open to others.
func TestCompose_PasswordIsOfAServerThatPublishesNoPort(t *testing.T) {
	p := project(t)
	postgres := p.Services["postgres"]
	if len(postgres.Ports) > 0 || postgres.NetworkMode == "host" {
		t.Errorf("postgres is published: %v %s", postgres.Ports, postgres.NetworkMode)
	}
	shop, _, _ := ours(t, p)
	for _, s := range shop {
		if url := s.Environment["SHOP_POSTGRES_URL"]; url == nil || !strings.Contains(*url, ":"+*postgres.Environment["POSTGRES_PASSWORD"]+"@postgres:5432/") {
			t.Errorf("%s has another password than postgres", s.Name)
		}
	}
}

func TestCompose_ImagesArePinnedAndNotBitnamis(t *testing.T) {
	pinned := regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?(-[\w.]+)?(@sha256:[0-9a-f]{64})?$`)
	_, _, servers := ours(t, project(t))
	for _, s := range servers {
		if !pinned.MatchString(s.Image) {
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
	if got := built(t, project(t, "GO_IMAGE="+mirror)).Build.Args["GO_IMAGE"]; got == nil || *got != mirror {
		t.Errorf("GO_IMAGE is no argument of the build: %v", got)
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

// used says that another service waits for it, or that it is reached from outside:
// only then is there something to be ready for.
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
	_, replicas, _ := ours(t, p)
	for _, s := range replicas {
		for _, name := range []string{"migrate", "seed"} {
			if _, ok := s.DependsOn[name]; !ok {
				t.Errorf("%s does not wait for %s", s.Name, name)
			}
		}
	}
}
