package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"shop/compose/local/stack"
)

func TestEndings_UpEndsWithDownOrWithItsSupervisor(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"down", "SIGKILL"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := local(t, "up", "--servers", "redis,postgres").Output()
			if err != nil {
				t.Fatal(err)
			}
			s := &session{dir: setting(t, string(out), "SHOP_STACK")}
			t.Cleanup(func() { // if the test has failed before it ended the stack
				if attached, err := stack.Attach(s.dir); err == nil {
					_ = attached.End()
				}
			})
			supervisor := role(t, "supervisor", s.dir)
			s.members = descendants(t, supervisor)
			status, err := local(t, "status").Output()
			if err != nil {
				t.Fatal(err)
			}
			wantContains(t, string(status), s.dir, "redis", "postgres", stack.Running)
			if name == "SIGKILL" {
				kill(t, supervisor, syscall.SIGKILL)
			} else {
				down := local(t, "down")
				down.Env = append(down.Env, "SHOP_STACK="+s.dir)
				if err := down.Run(); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(s.dir); err == nil {
					t.Error("down returned before the folder was gone")
				}
			}
			s.wantNothingLeft(t)
		})
	}
}

// A failed start is an ending, too: here the folder cannot be made.
func TestEndings_AFailedStartSaysWhatToDo(t *testing.T) {
	t.Parallel()
	cmd := local(t, "exec", "--servers", "redis", "--", "true")
	cmd.Stderr = nil
	cmd.Env = append(cmd.Env, "SHOP_REDIS_SERVER="+filepath.Join(t.TempDir(), "no-redis"))
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("it started without a server")
	}
	wantContains(t, string(out), "SHOP_REDIS_SERVER", "is not a program")
}
