package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func wantContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

// setting reads one from what `up` or `env` printed.
func setting(t *testing.T, text, name string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if key == name {
			return strings.Trim(value, "'")
		}
	}
	t.Fatalf("%s is not in\n%s", name, text)
	return ""
}

func TestExec_PassesTheExitCodeOn(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -KILL $$": 128 + 9} {
		cmd := local(t, "exec", "--servers", "redis", "--", "sh", "-c", script)
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d", script, got, want)
		}
	}
}

func TestExec_ExportsWhatLeadsToItsServers(t *testing.T) {
	t.Parallel()
	out, err := local(t, "exec", "--servers", everything, "--", "env").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, start := range map[string]string{
		"SHOP_POSTGRES_URL":   "postgres://shop:",
		"SHOP_REDIS_URL":      "redis://127.0.0.1:",
		"SHOP_ETCD_ENDPOINTS": "127.0.0.1:",
		"SHOP_MONGO_URL":      "mongodb://127.0.0.1:",
		"SHOP_REDIS_SERVER":   "/",
		"SHOP_STACK":          "/",
	} {
		if got := setting(t, string(out), name); !strings.HasPrefix(got, start) {
			t.Errorf("%s=%s, want %s…", name, got, start)
		}
	}
}

func TestExec_AnAddressThatIsSetWins(t *testing.T) {
	t.Parallel()
	const nowhere = "redis://127.0.0.1:1/0"
	cmd := local(t, "exec", "--servers", "redis", "--", "sh", "-c", "env; ls $SHOP_STACK")
	cmd.Env = append(cmd.Env, "SHOP_REDIS_URL="+nowhere)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := setting(t, string(out), "SHOP_REDIS_URL"); got != nowhere {
		t.Errorf("SHOP_REDIS_URL=%s, want %s", got, nowhere)
	}
	if strings.Contains(string(out), "redis.log") {
		t.Error("a server was started all the same")
	}
}

// Without compaction the quota is full after three million transfers.
func TestExec_ItsEtcdForgetsOldRevisions(t *testing.T) {
	t.Parallel()
	s := begin(t, "etcd", forever)
	args := ps(t)[attach(t, s, "etcd").PID].args
	wantContains(t, args, "--auto-compaction-mode periodic", "--auto-compaction-retention 1m")
}

// Inside `eval "$(… up)"` all is set: what is broken must be that stack's servers.
func TestExec_InsideAStackKeepsThatStack(t *testing.T) {
	t.Parallel()
	cmd := local(t, "exec", "--servers", "redis", "--", "env")
	cmd.Env = append(cmd.Env, "SHOP_REDIS_URL=redis://127.0.0.1:1/0", "SHOP_STACK=/outer")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := setting(t, string(out), "SHOP_STACK"); got != "/outer" {
		t.Errorf("SHOP_STACK=%s, want the outer one", got)
	}
}

func TestExec_ForwardsSignalsToTheWholeGroup(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			// dash starts background children with SIGINT ignored; the foreground one hears it.
			s := begin(t, "redis", "trap 'exit 42' INT TERM; sleep 300 & sleep 300; exit 1")
			kill(t, s.cmd.Process.Pid, sig)
			if code := s.code(t); code != 42 {
				t.Errorf("exit code %d, want 42 of the trap", code)
			}
			s.wantNothingLeft(t)
		})
	}
}

func TestExec_KillsAGroupThatRefusesToEnd(t *testing.T) {
	t.Parallel()
	s := await(t, local(t, "exec", "--servers", "redis", "--grace", "100ms", "--", "sh", "-c", "echo $$ $SHOP_STACK; "+forever))
	kill(t, s.cmd.Process.Pid, syscall.SIGTERM)
	if code := s.code(t); code != 128+9 {
		t.Errorf("exit code %d, want %d", code, 128+9)
	}
	s.wantNothingLeft(t)
}

func TestExec_EndsWhatTheCommandLeftRunning(t *testing.T) {
	t.Parallel()
	s := begin(t, "redis", "sleep 300 & read line; exit 0")
	_ = s.in.Close()
	if code := s.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.wantNothingLeft(t)
}

func TestExec_UnknownServersAndCommandsAreErrors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"exec", "--servers", "oracle", "--", "true"},
		{"exec", "--servers", "redis", "--", "no-such-command"},
		{"exec", "--servers", "redis"},
		{"exec", "--while", "999999999", "--", "true"},
	} {
		if err := local(t, args...).Run(); err == nil {
			t.Errorf("%v succeeded", args)
		}
	}
}

// The module beside the main one is vetted and built by the same Go.
func TestEtcdModule_IsPinnedAndVets(t *testing.T) {
	t.Parallel()
	sum, err := os.ReadFile(filepath.Join("etcd", "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	wantContains(t, string(sum), "go.etcd.io/etcd/server/v3 v3.7.3 ")
	if out, err := exec.Command("go", "vet", "-C", "etcd", "./...").CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
