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

// Goal: known mistakes in compose files are found without an engine. Method: load
// the file with the library that Docker Compose uses.

// load reads compose.yaml with exactly these variables set.
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

// withProfile returns a service that `up` leaves out.
func withProfile(t *testing.T, name string, env ...string) types.ServiceConfig {
	t.Helper()
	if _, started := project(t, env...).Services[name]; started {
		t.Errorf("`up` starts %s", name)
	}
	options, err := cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithEnv(env), cli.WithResolvedPaths(true), cli.WithProfiles([]string{name}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p.Services[name]
}

// built returns the service that builds the shop's image.
func built(t *testing.T, p *types.Project) types.ServiceConfig {
	t.Helper()
	var builders []types.ServiceConfig
	for _, s := range p.Services {
		if s.Build != nil {
			builders = append(builders, s)
		}
	}
	if len(builders) != 1 {
		t.Fatalf("%d services build an image, want one: each build moves the tag, and all containers are recreated", len(builders))
	}
	return builders[0]
}

// services returns the services that run the shop's program, the replicas among them, and
// the servers.
func services(t *testing.T, p *types.Project) (shop, replicas, servers []types.ServiceConfig) {
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

// command returns the shop command that the service runs.
func command(s types.ServiceConfig) string {
	switch {
	case len(s.Entrypoint) > 1:
		return s.Entrypoint[1]
	case len(s.Command) > 0:
		return s.Command[0]
	}
	return "serve" // the image's default
}

func oneShot(s types.ServiceConfig) bool { return s.Restart == types.RestartPolicyNo }

func TestCompose_RunsThreeReplicasAndEachOtherCommandOnce(t *testing.T) {
	shop, _, _ := services(t, project(t))
	var commands []string
	for _, s := range shop {
		if s.GetScale() != 1 {
			t.Errorf("%s has %d containers, want 1: containers of one service swap their ports at a restart", s.Name, s.GetScale())
		}
		commands = append(commands, command(s))
	}
	slices.Sort(commands)
	if want := []string{"batch", "migrate", "seed", "serve", "serve", "serve"}; !slices.Equal(commands, want) {
		t.Errorf("the services run %v, want %v", commands, want)
	}
}

// settings reads the variables of a command of the shop from its --help.
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

// `ps` and `down` load the file as `up` does: a required variable would be required by
// all of them.
func TestCompose_NeedsNoVariable(t *testing.T) {
	if _, err := load(t); err != nil {
		t.Error(err)
	}
	content, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`\$\{(\w+)(:-)?`).FindAllStringSubmatch(string(content), -1) {
		if match[1] != "COMPOSE_PROJECT_NAME" && match[2] == "" { // Compose sets that one
			t.Errorf("%s has no default", match[1])
		}
	}
}

// The password is in the file, so the server that it opens must not be reachable.
func TestCompose_TheServerWithThePasswordPublishesNoPort(t *testing.T) {
	p := project(t)
	postgres := p.Services["postgres"]
	if len(postgres.Ports) > 0 || postgres.NetworkMode == "host" {
		t.Errorf("postgres is published: %v %s", postgres.Ports, postgres.NetworkMode)
	}
	shop, _, _ := services(t, p)
	for _, s := range shop {
		if url := s.Environment["SHOP_POSTGRES_URL"]; url == nil || !strings.Contains(*url, ":"+*postgres.Environment["POSTGRES_PASSWORD"]+"@postgres:5432/") {
			t.Errorf("%s does not have the password of postgres", s.Name)
		}
	}
}

func TestCompose_ImagesArePinnedAndNotBitnamis(t *testing.T) {
	pinned := regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?(-[\w.]+)?(@sha256:[0-9a-f]{64})?$`)
	_, _, servers := services(t, project(t))
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
		t.Errorf("GO_IMAGE is not an argument of the build: %v", got)
	}
}

func TestCompose_EveryServiceHasAMemoryLimitAndSaysWhenItIsReady(t *testing.T) {
	p := project(t)
	for _, s := range p.Services {
		if s.MemLimit <= 0 {
			t.Errorf("%s has no memory limit", s.Name)
		}
		if s.ContainerName != "" {
			t.Errorf("%s has a fixed container name: two checkouts collide", s.Name)
		}
		checked := s.HealthCheck != nil && !s.HealthCheck.Disable && len(s.HealthCheck.Test) > 1
		if want := !oneShot(s) && used(p, s); checked != want {
			t.Errorf("%s: one-shot %v, used %v, health check %v", s.Name, oneShot(s), used(p, s), s.HealthCheck)
		}
	}
}

// used reports whether another service waits for this one, or it publishes a port.
// Only then does its readiness matter.
func used(p *types.Project, s types.ServiceConfig) bool {
	for _, other := range p.Services {
		if _, waits := other.DependsOn[s.Name]; waits {
			return true
		}
	}
	return len(s.Ports) > 0
}

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
	_, replicas, _ := services(t, p)
	for _, s := range replicas {
		for _, name := range []string{"migrate", "seed"} {
			if _, ok := s.DependsOn[name]; !ok {
				t.Errorf("%s does not wait for %s", s.Name, name)
			}
		}
	}
}

func TestDockerfile_IsStaticAndDoesNotRunAsRoot(t *testing.T) {
	content, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, final, ok := strings.Cut(string(content), "\nFROM scratch AS shop\n")
	if !ok || strings.Contains(final, "prove") {
		t.Fatal("the last stage is not the empty image with shop alone")
	}
	for _, want := range []string{"CGO_ENABLED=0", "GOARCH=$TARGETARCH", "--platform=$BUILDPLATFORM"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("lacks %s", want)
		}
	}
	user := regexp.MustCompile(`(?m)^USER ([1-9]\d*):([1-9]\d*)$`)
	if !user.MatchString(final) {
		t.Error("the last stage sets no numeric user other than root")
	}
	image := regexp.MustCompile(`(?m)^ARG GO_IMAGE=golang:\d+\.\d+\.\d+`)
	if !image.Match(content) {
		t.Error("the Go image is not pinned")
	}
}

// The tests of locking/mysqllock connect to it from the host, as the user that may do everything.
func TestCompose_MysqlStartsOnlyOnRequestAndStoresNothing(t *testing.T) {
	for prefix, port := range map[string]string{"": "18006", "SHOP_PORT_PREFIX=181": "18106"} {
		mysql := withProfile(t, "mysql", prefix)
		if len(mysql.Ports) != 1 || mysql.Ports[0].HostIP != "127.0.0.1" || mysql.Ports[0].Published != port {
			t.Errorf("published: %+v, want 127.0.0.1:%s", mysql.Ports, port)
		}
		if !regexp.MustCompile(`^mysql:8\.4\.\d+$`).MatchString(mysql.Image) || mysql.MemLimit <= 0 {
			t.Errorf("image %s, memory limit %d", mysql.Image, mysql.MemLimit)
		}
		if len(mysql.Volumes) > 0 || !slices.Equal(mysql.Tmpfs, []string{"/var/lib/mysql"}) {
			t.Errorf("volumes %v, in memory %v", mysql.Volumes, mysql.Tmpfs)
		}
		if check := mysql.HealthCheck; check == nil || !strings.Contains(strings.Join(check.Test, " "), "-h 127.0.0.1") {
			t.Errorf("health check %v", check)
		}
	}
}
