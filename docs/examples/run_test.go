// SPDX-License-Identifier: MIT

package examples

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"shop/locking/servertest"
)

// `make run`, stopped as by Ctrl-C: its last line is the address of the page, and the lines `export` before it are all
// that another shell needs.
func TestRun_ItsLastLineIsThePageAndAnotherShellHasItsServers(t *testing.T) {
	t.Parallel()
	if err := built(); err != nil {
		t.Fatal(err)
	}
	dir, api := checkout(t), servertest.FreeAddr(t)
	root := filepath.Join(dir, "shop")
	if err := os.Symlink(bin, filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("make", "-s", "-o", "build", "run") // which would build the rest too
	run.Dir, run.Env = root, append(withoutServers(dir), "SHOP_LISTEN="+api, "SHOP_METRICS_LISTEN=127.0.0.1:0")
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Stderr = t.Output()
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(time.Minute, func() { _ = syscall.Kill(-run.Process.Pid, syscall.SIGINT) })
	defer stop.Stop()
	exports, last := "", ""
	lines := bufio.NewScanner(out)
	for !strings.HasPrefix(last, "http") && lines.Scan() {
		if last = lines.Text(); strings.HasPrefix(last, "export ") {
			exports += last + "\n"
		}
	}
	if last != "http://"+api+"/" {
		t.Errorf("it ends with %q, want the address of the page", last)
	}
	if answer, err := http.Get(last); err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("the page: %v, %v", answer, err)
	}
	other := exec.CommandContext(t.Context(), "bash", "-c", exports+"bin/shop audit && curl -sf -H \"Authorization: Bearer $SHOP_KEY_ALICE\" "+last+"v1/wallets/$SHOP_WALLET_ALICE")
	other.Dir, other.Env = root, withoutServers(dir)
	if printed, err := other.CombinedOutput(); err != nil || !strings.Contains(string(printed), "account-balance (T3)") {
		t.Errorf("another shell: %v\n%s", err, printed)
	}
	if err := syscall.Kill(-run.Process.Pid, syscall.SIGINT); err != nil {
		t.Error(err)
	}
	for lines.Scan() {
		t.Errorf("after the address it printed %s", lines.Text())
	}
	_ = run.Wait() // make says that it was interrupted
}
