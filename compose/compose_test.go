// SPDX-License-Identifier: MIT

package compose_test

import (
	"context"
	"fmt"
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

// load reads compose.yaml with these profiles and exactly these variables set.
func load(t *testing.T, profiles []string, env ...string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithEnv(env), cli.WithResolvedPaths(true), cli.WithProfiles(profiles))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(context.Background())
}

// project returns what `up` starts.
func project(t *testing.T, env ...string) *types.Project {
	t.Helper()
	return profile(t, nil, env...)
}

// everything returns the services of all profiles.
func everything(t *testing.T, env ...string) *types.Project {
	t.Helper()
	return profile(t, []string{"*"}, env...)
}

// loaded holds what profile returned: the tests only read it, and many ask for the same.
var loaded = map[string]*types.Project{}

func profile(t *testing.T, profiles []string, env ...string) *types.Project {
	t.Helper()
	key := fmt.Sprint(profiles, env)
	if p := loaded[key]; p != nil {
		return p
	}
	p, err := load(t, profiles, env...)
	if err != nil {
		t.Fatal(err)
	}
	loaded[key] = p
	return p
}

// withProfile returns a service that `up` leaves out.
func withProfile(t *testing.T, profiled, name string, env ...string) types.ServiceConfig {
	t.Helper()
	if _, started := project(t, env...).Services[name]; started {
		t.Errorf("`up` starts %s", name)
	}
	s, found := profile(t, []string{profiled}, env...).Services[name]
	if !found {
		t.Fatalf("profile %s has no service %s", profiled, name)
	}
	return s
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
// the servers. A proxy is neither, nor is what makes secrets.
func services(t *testing.T, p *types.Project) (shop, replicas, servers []types.ServiceConfig) {
	t.Helper()
	image := built(t, project(t)).Image
	for _, s := range p.Services {
		if isProxy(s) || makesSecrets(s) || s.Name == "prove" {
			continue
		}
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

func isProxy(s types.ServiceConfig) bool {
	return strings.Contains(s.Image, "haproxy") && !makesSecrets(s)
}

func oneShot(s types.ServiceConfig) bool { return s.Restart == types.RestartPolicyNo }

func TestCompose_RunsThreeReplicasAndEachOtherCommandOnce(t *testing.T) {
	shop, _, _ := services(t, project(t))
	var commands []string
	for _, s := range shop {
		if s.GetScale() != 1 {
			t.Errorf("%s has %d containers, want 1: each must have a name by which it can be stopped", s.Name, s.GetScale())
		}
		commands = append(commands, command(s))
	}
	slices.Sort(commands)
	if want := []string{"--version", "batch", "migrate", "seed", "serve", "serve", "serve"}; !slices.Equal(commands, want) {
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
	if _, err := load(t, []string{"*"}); err != nil {
		t.Error(err)
	}
	for _, file := range everythingsFiles(t) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`\$\{(\w+)(:-)?`).FindAllStringSubmatch(string(content), -1) {
			if match[1] != "COMPOSE_PROJECT_NAME" && match[2] == "" { // Compose sets that one
				t.Errorf("%s: %s has no default", file, match[1])
			}
		}
	}
}

// everythingsFiles returns compose.yaml and the files that it includes.
func everythingsFiles(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^include: \[(.+)\]`).FindSubmatch(content)
	if match == nil {
		t.Fatal("compose.yaml includes nothing: this test must be fixed")
	}
	return append(strings.Split(string(match[1]), ", "), "compose.yaml")
}

func TestCompose_ImagesArePinnedAndNotBitnamis(t *testing.T) {
	pinned := regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?(-[\w.]+)?(@sha256:[0-9a-f]{64})?$`)
	for _, s := range everything(t).Services {
		if s.PullPolicy == types.PullPolicyNever || s.PullPolicy == types.PullPolicyBuild {
			continue // built here
		}
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
	p := everything(t)
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

// used reports whether another service waits for this one, or it publishes a port, by itself or in
// the network of another.
// Only then does its readiness matter.
func used(p *types.Project, s types.ServiceConfig) bool {
	for _, other := range p.Services {
		if d, waits := other.DependsOn[s.Name]; waits && d.Condition != types.ServiceConditionStarted {
			return true
		}
	}
	return len(s.Ports) > 0 || strings.HasPrefix(s.NetworkMode, types.ServicePrefix)
}

func TestCompose_WaitsForReadinessNotForStarts(t *testing.T) {
	p := everything(t)
	for _, s := range p.Services {
		for name, d := range s.DependsOn {
			want := types.ServiceConditionHealthy
			if oneShot(p.Services[name]) {
				want = types.ServiceConditionCompletedSuccessfully
			}
			if command(p.Services[name]) == "batch" || s.NetworkMode == types.ServicePrefix+name { // nothing requests anything from it; its network is there
				want = types.ServiceConditionStarted
			}
			if d.Condition != want {
				t.Errorf("%s waits for %s: %s, want %s", s.Name, name, d.Condition, want)
			}
		}
	}
	_, replicas, _ := services(t, project(t))
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
