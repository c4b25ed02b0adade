package stack

import (
	"io"
	"os"
	"strings"
	"testing"
)

func TestNeed_InstallsOnlyWhatIsNotThere(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	bin(t, true, map[string]string{"gcc": "exit 0"})
	if err := Need(t.Context(), "gcc", []string{"gcc", "libc6-dev"}, io.Discard); err != nil {
		t.Errorf("it is there: %v", err)
	}
	if err := os.Remove(os.Getenv("PATH") + "/gcc"); err != nil {
		t.Fatal(err)
	}
	err := Need(t.Context(), "gcc", []string{"gcc", "libc6-dev"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "missing: gcc, libc6-dev") {
		t.Errorf("gone, and nothing to install it with: %v", err)
	}
}
