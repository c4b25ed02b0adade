// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func wantContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

// setting reads a variable from the output of `up` or `env`.
func setting(t *testing.T, text, name string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if key == name {
			return strings.Trim(value, "'")
		}
	}
	t.Fatalf("%s is not set in\n%s", name, text)
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

// With --print its output is read: first the settings for other shells, and then that of the command.
func TestExec_ExportsTheAddressesOfItsServers(t *testing.T) {
	t.Parallel()
	out, err := local(t, "exec", "--servers", everything, "--print", "--", "sh", "-c", "echo; env").Output()
	if err != nil {
		t.Fatal(err)
	}
	printed, inside, _ := strings.Cut(string(out), "\n\n")
	for name, start := range map[string]string{
		"SHOP_POSTGRES_URL":   "postgres://shop:",
		"SHOP_REDIS_URL":      "redis://127.0.0.1:",
		"SHOP_ETCD_ENDPOINTS": "127.0.0.1:",
		"SHOP_MONGO_URL":      "mongodb://127.0.0.1:",
		"SHOP_REDIS_SERVER":   "/",
		"SHOP_STACK":          "/",
	} {
		if got := setting(t, inside, name); !strings.HasPrefix(got, start) || got != setting(t, printed, name) {
			t.Errorf("%s=%s, want %s…, as printed for other shells", name, got, start)
		}
	}
}

func TestExec_AServerWhoseAddressIsSetIsNotStarted(t *testing.T) {
	t.Parallel()
	const nowhere = "redis://127.0.0.1:1/0"
	cmd := local(t, "exec", "--servers", "redis", "--restart", "redis", "--", "sh", "-c", "env; ls $SHOP_STACK")
	cmd.Env = append(cmd.Env, "SHOP_REDIS_URL="+nowhere)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := setting(t, string(out), "SHOP_REDIS_URL"); got != nowhere {
		t.Errorf("SHOP_REDIS_URL=%s, want %s", got, nowhere)
	}
	if strings.Contains(string(out), "redis.log") {
		t.Error("a Redis was started although SHOP_REDIS_URL is set")
	}
	if strings.Contains(string(out), "SHOP_LAB_KILL") {
		t.Error("the lab may end a Redis that nothing here starts again")
	}
}

// An empty one forbids the lab to end Redis.
func TestExec_TheVariableOfTheKillStaysAsItIsSet(t *testing.T) {
	t.Parallel()
	cmd := local(t, "exec", "--servers", "redis", "--restart", "redis", "--", "env")
	cmd.Env = append(cmd.Env, "SHOP_LAB_KILL=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := setting(t, string(out), "SHOP_LAB_KILL"); got != "" {
		t.Errorf("SHOP_LAB_KILL=%s, want it empty", got)
	}
}

// Without compaction etcd's quota is full after three million transfers.
func TestExec_EtcdCompactsOldRevisions(t *testing.T) {
	t.Parallel()
	s := begin(t, "etcd", forever)
	args := ps(t)[attach(t, s, "etcd").PID].args
	wantContains(t, args, "--auto-compaction-mode periodic", "--auto-compaction-retention 1m")
}

// After `eval "$(… up)"` all addresses are set: faults must hit that stack's servers.
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
			// dash starts background children with SIGINT ignored; only the foreground child ends.
			s := begin(t, "redis", "trap 'exit 42' INT TERM; sleep 300 & sleep 300; exit 1")
			kill(t, s.cmd.Process.Pid, sig)
			if code := s.code(t); code != 42 {
				t.Errorf("exit code %d, want 42 from the trap", code)
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
		{"exec", "--servers", "redis", "--restart", "etcd", "--", "true"},
	} {
		if err := local(t, args...).Run(); err == nil {
			t.Errorf("%v succeeded", args)
		}
	}
}

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

// limited runs exec for a MongoDB in a shell that has set a limit of open files.
func limited(t *testing.T, limit string) *session {
	t.Helper()
	cmd := local(t, "-c", limit+` && exec "$0" exec --servers mongo -- sh -c 'echo $$ $SHOP_STACK; `+forever2+`'`, os.Args[0])
	cmd.Path, cmd.Args[0] = shell(t), "sh"
	return await(t, cmd)
}

// mongod derives its limit of connections from its limit of open files: four fifths.
func TestFiles_AServerGetsTheHardLimitNotTheSoftOne(t *testing.T) {
	t.Parallel()
	s := limited(t, "ulimit -S -n 1024")
	client, err := mongo.Connect(options.Client().ApplyURI(attach(t, s, "mongo").Env["SHOP_MONGO_URL"]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	var status struct{ Connections struct{ Available int } }
	if err := client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
		t.Fatal(err)
	}
	if got := status.Connections.Available; got <= 1024 {
		t.Errorf("%d connections are available: the soft limit of open files is still 1024", got)
	}
}

func TestFiles_ATooLowHardLimitIsAnErrorWithTheNumber(t *testing.T) {
	t.Parallel()
	cmd := local(t, "-c", `ulimit -n 1024 && exec "$0" exec --servers mongo -- true`, os.Args[0])
	cmd.Path, cmd.Args[0], cmd.Stderr = shell(t), "sh", nil
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("exec succeeded with a hard limit of 1024 open files")
	}
	wantContains(t, string(out), "mongo needs 4096 open files", "the hard limit is 1024", "what to do", "limits.conf")
}
