// SPDX-License-Identifier: MIT

package lab

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// makeRun runs the command of the README, on servers of its own, and returns the address that it prints. When the test
// ends, it sends what Ctrl-C sends, to the processes of this command alone.
func makeRun(t *testing.T) (address string) {
	t.Helper()
	// The servers also end when the test ends in another way: make would not notice that.
	cmd := exec.Command("make", "--no-print-directory", "run", "STACK=bin/local exec --while "+strconv.Itoa(os.Getpid()))
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = "../../.."
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool { // as a visitor has them, who ran no make test
		return strings.HasPrefix(variable, "SHOP_") || strings.HasPrefix(variable, "MAKE") || strings.HasPrefix(variable, "MFLAGS")
	}), "SHOP_LISTEN=127.0.0.1:0", "SHOP_METRICS_LISTEN=127.0.0.1:0")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		defer out.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			t.Errorf("make run does not end: %v", <-ended)
		}
	})
	_ = out.SetReadDeadline(time.Now().Add(3 * time.Minute))
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		t.Log(lines.Text())
		if strings.HasPrefix(lines.Text(), "http://127.0.0.1:") {
			return lines.Text()
		}
	}
	t.Fatalf("make run printed no address: %v", lines.Err())
	return ""
}

// Goal: what the README promises is true of the program and its servers together, not only of the page.
func TestPage_IsAtTheAddressThatMakeRunPrints(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	b.do(chromedp.Navigate(makeRun(t)), chromedp.WaitReady("#run"), chromedp.SetValue(`input[name="size"]`, "30"))
	b.race(func() string {
		wrong, right := b.verdicts()
		if !strings.HasPrefix(wrong, "✗ sold ") || !strings.HasPrefix(right, "✓ sold 30 of 30") {
			return "naive: " + wrong + "; redis+row: " + right
		}
		return ""
	})
	// Its Redis is started again after a kill, without the locks.
	b.choose("left", "redis-only")
	b.choose("fault", "kill")
	b.do(chromedp.SetValue(`input[name="size"]`, "80"))
	const caption = `[...document.querySelectorAll(".holders figcaption")].map((c) => c.innerText).join("; ")`
	b.race(func() string {
		wrong, right := b.verdicts()
		told := eval[string](b, caption)
		switch {
		case !strings.HasPrefix(wrong, "✗ sold ") || !strings.HasPrefix(right, "✓ sold 80 of 80"):
			return "redis-only: " + wrong + "; redis+row: " + right
		case strings.Count(told, "The lock server was killed after ") < 2 || strings.Count(told, ", without its data") < 2:
			return "the time lines are " + told
		case b.count(0, ".down") == 0 || b.count(0, ".mark") == 0:
			return "the time line of redis-only shows no outage, or no lost lock"
		}
		return ""
	})
}
