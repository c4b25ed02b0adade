package lab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browser is a tab of Debian's chromium. The test fails if there is none.
type browser struct {
	*testing.T
	ctx context.Context
}

func openBrowser(t *testing.T) browser {
	t.Helper()
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))...)
	tab, closeTab := chromedp.NewContext(allocator)
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1280, 900)); err != nil { // the browser lives as long as this ctx
		t.Fatalf("chromium: %v\nis it installed? apt-get install chromium", err)
	}
	ctx, cancel := context.WithTimeout(tab, time.Minute)
	t.Cleanup(func() {
		cancel()
		if err := chromedp.Cancel(tab); err != nil { // waits for the process
			t.Error(err)
		}
		closeTab()
		stop()
	})
	return browser{t, ctx}
}

func (b browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// eval evaluates JavaScript.
func eval[T any](b browser, script string) T {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.Fatalf("%s: %v", script, err)
	}
	return value
}

// shoot writes a screenshot into the folder SHOP_SCREENSHOTS, if it is set.
func (b browser) shoot(name string) {
	b.Helper()
	folder := os.Getenv("SHOP_SCREENSHOTS")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func (b browser) prefer(scheme string) {
	b.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		b.Fatal(err)
	}
}

// missing reads what the page shows after a race, and returns what it lacks.
func (b browser) missing() string {
	b.Helper()
	const lane = `document.querySelectorAll("#lanes > section")`
	wrong := eval[string](b, lane+`[0].querySelector(".verdict").innerText`)
	right := eval[string](b, lane+`[1].querySelector(".verdict").innerText`)
	if !strings.HasPrefix(right, "✓ sold ") {
		b.Errorf("redis+row: %s", right)
	}
	status := eval[string](b, `document.querySelector("#status").innerText`)
	text := eval[string](b, lane+`[1].querySelector(".time").textContent`)
	switch {
	case !strings.HasPrefix(wrong, "✗ sold ") || !strings.Contains(wrong, "disappointed"):
		return "naive: " + wrong
	case !strings.HasPrefix(right, "✓ sold 30 of 30"):
		return "redis+row: " + right
	case !strings.Contains(status, "disappointed") || !strings.Contains(status, "redis+row sold 30 of 30."):
		return "the live region says " + status
	case eval[int](b, lane+`[0].querySelectorAll(".time .stale").length`) == 0:
		return "the time line of naive shows no purchase that wrote over another"
	case eval[int](b, lane+`[1].querySelectorAll(".time .lock").length`) < 2 || !strings.Contains(text, "fence"):
		return "the time line of redis+row shows no holders of the lock: " + text
	}
	return ""
}

func TestPage_AVisitorSeesTheOversell(t *testing.T) {
	t.Parallel()
	s, b := serve(t), openBrowser(t)
	b.prefer("light")
	b.do(chromedp.Navigate(s.url+"/"), chromedp.WaitReady("#run"), chromedp.SetValue(`input[name="stock"]`, "30"))
	why := "not run"
	for n := 0; n < 3 && why != ""; n++ { // on a machine that is too busy the time of a race may end too early
		b.do(chromedp.SendKeys(`input[name="seed"]`, "\r"), // by keyboard: Enter in a field is Run
			chromedp.WaitNotVisible("#again"), chromedp.WaitVisible("#again"))
		why = b.missing()
	}
	if why != "" {
		t.Error(why)
	}
	if command := eval[string](b, `document.querySelector("#command").innerText`); !strings.Contains(command, "--seed 1 --strategy naive --strategy redis+row") {
		t.Errorf("the command is %s", command)
	}
	const background = `getComputedStyle(document.body).backgroundColor`
	b.shoot("light")
	light := eval[string](b, background)
	b.prefer("dark")
	if dark := eval[string](b, background); dark == light {
		t.Errorf("light and dark are both %s", dark)
	}
	b.shoot("dark")
	b.do(chromedp.EmulateViewport(360, 740))
	if width := eval[int](b, `document.documentElement.scrollWidth`); width > 360 {
		t.Errorf("%d pixels wide on a phone of 360", width)
	}
	b.shoot("phone")
}
