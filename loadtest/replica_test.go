package loadtest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asReplica as first argument makes the test binary a replica: it serves
// /readyz, refuses every order, counts, and ends on SIGTERM.
const asReplica = "be-a-replica"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asReplica {
		os.Exit(beReplica(os.Args[2], os.Args[3], os.Args[4]))
	}
	goleak.VerifyTestMain(m)
}

func beReplica(mode, listen, metrics string) int {
	if mode == "broken" {
		fmt.Fprintln(os.Stderr, "no database")
		return 1
	}
	if mode == "suicide" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	for _, setting := range os.Environ() {
		if strings.HasPrefix(setting, "SHOP_") {
			fmt.Fprintln(os.Stderr, "inherited", setting)
			return 1
		}
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(exposition)) })
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusServiceUnavailable, "busy") })
	go func() { _ = http.ListenAndServe(metrics, mux) }()
	go func() { _ = http.ListenAndServe(listen, mux) }()
	<-ended
	return 0
}

func replicaProgram(t *testing.T, mode string) Program {
	t.Helper()
	t.Setenv("SHOP_STRATEGY", "naive") // must not reach a replica
	return Program{
		Path:  os.Args[0],
		Args:  func(_ int, listen, metrics string) []string { return []string{asReplica, mode, listen, metrics} },
		Spawn: (*exec.Cmd).Start,
		Logs:  t.TempDir(),
	}
}

func alive(addr string) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + addr + "/readyz")
	if err == nil {
		_ = res.Body.Close()
	}
	return err == nil
}

func TestReplicas_AKilledOneComesBackOnItsAddressAndItsCountsAreKept(t *testing.T) {
	adopted := 0
	program := replicaProgram(t, "good")
	program.Adopt = func(int) error { adopted++; return nil }
	replicas, err := StartReplicas(t.Context(), program, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer replicas.KillAll()
	addr := replicas.all[0].addr
	asked := 0 // idle when it is asked first: the kill waits for a request
	replicas.UnderWay = func(int) int { asked++; return asked / 2 }
	if err := replicas.Kill(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if asked != 2 {
		t.Errorf("asked %d times for a request to interrupt, want 2", asked)
	}
	if alive(addr) {
		t.Error("killed, and it still answers")
	}
	if err := replicas.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if !alive(addr) {
		t.Error("started again, and it does not answer")
	}
	if n := replicas.Peek(t.Context())["guard_tripped"]; n != 6 {
		t.Errorf("two lives with 3 each: %d counted", n)
	}
	replicas.Stop(t.Context())
	if alive(addr) {
		t.Error("stopped, and it still answers")
	}
	if n := replicas.Counters.Sum()["guard_tripped"]; n != 6 || adopted != 2 {
		t.Errorf("counted %d, adopted %d; want 6 and 2", n, adopted)
	}
}

func TestReplicas_OneThatCannotStartIsAnErrorWithItsLastWordsAndNoneIsLeft(t *testing.T) {
	_, err := StartReplicas(t.Context(), replicaProgram(t, "broken"), 2)
	if err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("error %v, want the replica's last words", err)
	}
}
