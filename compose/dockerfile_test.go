package compose_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestDockerfile_IsStaticAndRunsAsNobody(t *testing.T) {
	content, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, final, ok := strings.Cut(string(content), "\nFROM scratch\n")
	if !ok {
		t.Fatal("the last stage is not the empty image")
	}
	for _, want := range []string{"CGO_ENABLED=0", "GOARCH=$TARGETARCH", "--platform=$BUILDPLATFORM"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("lacks %s", want)
		}
	}
	user := regexp.MustCompile(`(?m)^USER ([1-9]\d*):([1-9]\d*)$`)
	if !user.MatchString(final) {
		t.Error("the last stage does not name a user by number, other than root")
	}
	image := regexp.MustCompile(`(?m)^ARG GO_IMAGE=golang:\d+\.\d+\.\d+`)
	if !image.Match(content) {
		t.Error("the Go image is not pinned")
	}
}
