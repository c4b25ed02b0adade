// SPDX-License-Identifier: MIT

package lab

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	screen "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
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
	ctx, cancel := context.WithTimeout(tab, 6*time.Minute) // twelve races that take all of their time
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

// shoot writes a screenshot of the page down to an ordinate, in pixels, into the folder SHOP_SCREENSHOTS, if it is set.
func (b browser) shoot(name, bottom string) {
	b.Helper()
	folder := os.Getenv("SHOP_SCREENSHOTS")
	if folder == "" {
		return
	}
	clip := &screen.Viewport{
		Width: eval[float64](b, `document.documentElement.clientWidth`), Height: eval[float64](b, `document.activeElement.blur(), scrollTo(0, 0), `+bottom), Scale: 1,
	}
	beyond := true
	shot, err := chromedp.Call(b.ctx, screen.CaptureScreenshot, screen.CaptureScreenshotParams{Clip: clip, CaptureBeyondViewport: &beyond})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), b.reduced(shot.Data), 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// reduced reduces a picture to the 256 colors that it has most of. Its file is then small enough for the documents.
func (b browser) reduced(file []byte) []byte {
	b.Helper()
	picture, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		b.Fatal(err)
	}
	pixels := map[color.Color]int{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			pixels[picture.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(pixels), func(a, b color.Color) int { return pixels[b] - pixels[a] })
	small := image.NewPaletted(picture.Bounds(), colors[:min(len(colors), 256)])
	draw.Draw(small, small.Bounds(), picture, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
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

// panels are those of the strategies.
const panels = `document.querySelectorAll("#lanes > section")`

func (b browser) verdicts() (left, right string) {
	b.Helper()
	return eval[string](b, panels+`[0].querySelector(".verdict").innerText`), eval[string](b, panels+`[1].querySelector(".verdict").innerText`)
}

// race presses Enter in the form, by keyboard, until the page shows what it should, at most three times: on a machine
// that is too busy a race may not start, and its time may end too early.
func (b browser) race(missing func() string) {
	b.Helper()
	why := "not run"
	for n := 0; n < raceTries && why != ""; n++ {
		b.do(chromedp.SendKeys(`input[name="seed"]`, "\r"))
		b.until(notStarted + ` || document.querySelector("#again").hidden`)
		b.until(notStarted + ` || !document.querySelector("#again").hidden`)
		if why = "the race could not start"; !eval[bool](b, notStarted) {
			why = missing()
		}
	}
	if why != "" {
		b.Error(why)
	}
}

// notStarted is the condition that the server has answered that it cannot start a race.
const notStarted = `(!document.querySelector("#error").hidden && document.querySelector("#error").innerText.includes("could not start"))`

// until waits until a condition of the page is true.
func (b browser) until(condition string) {
	b.Helper()
	poll := chromedp.Poll[bool](condition, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(0))
	if _, err := chromedp.Run(b.ctx, poll); err != nil {
		b.Fatalf("%s: %v", condition, err)
	}
}

// choose changes a field as a visitor does.
func (b browser) choose(name, value string) {
	b.Helper()
	eval[bool](b, fmt.Sprintf(`(() => {
		const field = document.querySelector("#settings").elements[%q];
		field.value = %q;
		return field.dispatchEvent(new Event("change"));
	})()`, name, value))
}

// count counts the elements in the time line of a lane.
func (b browser) count(n int, selector string) int {
	b.Helper()
	return eval[int](b, fmt.Sprintf(`%s[%d].querySelectorAll(".time %s").length`, panels, n, selector))
}

// scales are the ends of the scales of the figures.
const scales = `[...document.querySelectorAll(".figures")].map((figure) => figure.plot.scales.y.max)`

// label returns the text alternative of the time line of a lane.
func (b browser) label(n int) string {
	b.Helper()
	return eval[string](b, fmt.Sprintf(`%s[%d].querySelector(".time").getAttribute("aria-label")`, panels, n))
}

func TestPage_AVisitorSeesTheOversell(t *testing.T) {
	t.Parallel()
	s, b := serve(t), openBrowser(t)
	b.prefer("light")
	b.do(chromedp.Navigate(s.url+"/"), chromedp.WaitReady("#run"), chromedp.SetValue(`input[name="size"]`, "30"))
	b.race(func() string {
		wrong, right := b.verdicts()
		if !strings.HasPrefix(right, "✓ sold ") {
			b.Errorf("redis+row: %s", right)
		}
		status := eval[string](b, `document.querySelector("#status").innerText`)
		switch {
		case !strings.HasPrefix(wrong, "✗ sold ") || !strings.Contains(wrong, "disappointed"):
			return "naive: " + wrong
		case !strings.HasPrefix(right, "✓ sold 30 of 30"):
			return "redis+row: " + right
		case !strings.Contains(status, "disappointed") || !strings.Contains(status, "redis+row sold 30 of 30."):
			return "the live region says " + status
		case b.count(0, ".stale") == 0:
			return "the time line of naive shows no purchase that wrote over another"
		case b.count(1, ".lock") < 2 || !strings.Contains(b.label(1), "fence"):
			return "the time line of redis+row shows no holders of the lock: " + b.label(1)
		}
		return ""
	})
	b.shoot("race", `document.querySelector("#again").getBoundingClientRect().top`)
	if command := eval[string](b, `document.querySelector("#command").innerText`); !strings.Contains(command, "--flow inventory --seed 1 --strategy naive --strategy redis+row") {
		t.Errorf("the command is %s", command)
	}
	const background = `getComputedStyle(document.body).backgroundColor`
	if ends := eval[[]float64](b, scales); len(ends) != 2 || ends[0] != ends[1] || ends[0] < 30 {
		t.Errorf("the scales of the panels end at %v", ends)
	}
	light := eval[string](b, background)
	b.prefer("dark")
	if dark := eval[string](b, background); dark == light {
		t.Errorf("light and dark are both %s", dark)
	}
	b.do(chromedp.EmulateViewport(360, 740))
	if width := eval[int](b, `document.documentElement.scrollWidth`); width > 360 {
		t.Errorf("%d pixels wide on a phone of 360", width)
	}
}

// The time line shows the late write: the pause, the lease that is lost, and the fence that PostgreSQL refuses. After it
// the same page races for a wallet.
func TestPage_AVisitorSeesTheLateWriteAndTheLostCredit(t *testing.T) {
	t.Parallel()
	s, b := serve(t), openBrowser(t)
	b.prefer("light")
	b.do(chromedp.Navigate(s.url+"/"), chromedp.WaitReady("#run"))
	b.choose("flow", "transfer")
	if text := eval[string](b, `document.querySelector("#paused").innerText`); !strings.Contains(text, "arrived at the end of the pause") {
		t.Errorf("a pause of transfers is explained as %q", text)
	}
	b.race(func() string {
		wrong, right := b.verdicts()
		switch {
		case !strings.HasPrefix(wrong, "✗ money moved twice: ") || !strings.Contains(wrong, "fence-order (T4)"):
			return "etcd-unfenced: " + wrong
		case !strings.HasPrefix(right, "✓ paid "): // all of it, unless the time was over
			return "etcd-fence-only: " + right
		case !strings.Contains(b.label(0), "late write over #") || b.count(0, ".paused") == 0 || b.count(0, ".stale") == 0:
			return "the time line of etcd-unfenced shows no late write: " + b.label(0)
		case b.count(1, ".paused") == 0 || !strings.Contains(b.label(1), "fence refused"):
			return "the time line of etcd-fence-only shows no late write whose fence is refused: " + b.label(1)
		}
		return ""
	})
	b.shoot("lab", `document.querySelector("#again").getBoundingClientRect().top`)
	// By keyboard: the window of the time line moves from its begin to its end.
	const window = `#lanes > section:nth-of-type(2) input[type="range"]`
	b.do(chromedp.SendKeys(window, kb.Home))
	first := b.label(1)
	b.do(chromedp.SendKeys(window, kb.End))
	if b.label(1) == first {
		t.Error("the time line did not move")
	}
	b.choose("flow", "wallet")
	if text := eval[string](b, `document.querySelector("#paused").innerText`); strings.Contains(text, "arrived") || !strings.Contains(text, "stayed locked") {
		t.Errorf("a pause of wallets is explained as %q", text)
	}
	b.race(func() string {
		wrong, right := b.verdicts()
		if !strings.HasPrefix(wrong, "✗ ") || !strings.Contains(wrong, "lost: ") || !strings.Contains(right, " credits, each of them in the balance") || b.count(1, ".call") == 0 {
			return "wallet: " + wrong + "; " + right
		}
		return ""
	})
	if fault := eval[int](b, `[...document.querySelector("#settings").fault.options].filter((o) => o.value === "drop").length`); fault != 0 {
		t.Error("wallets have no lock to drop, but the page offers it")
	}
}

// The server ends without a word, and another one at its address does not know the race.
func TestPage_ARestartOfTheServerIsSaidAndRunWorksAgain(t *testing.T) { // not beside other browsers: the page must notice within half a minute
	s, b := serve(t), openBrowser(t)
	listen := func(address string, lab http.Handler) (*http.Server, string) {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: lab, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		return server, listener.Addr().String()
	}
	first, address := listen("127.0.0.1:0", s.lab)
	b.do(chromedp.Navigate("http://"+address+"/"), chromedp.WaitReady("#run"), chromedp.Click("#run"), chromedp.WaitVisible("#lanes dl div"))
	if err := first.Close(); err != nil { // the connections too
		t.Fatal(err)
	}
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[bool](`document.querySelector("#status").innerText.includes("The connection was lost")`)); err != nil {
		t.Fatal(err)
	}
	s.lab.Close()
	again := New(s.cfg)
	t.Cleanup(again.Close)
	listen(address, again)
	b.do(chromedp.WaitVisible("#error"))
	if text := eval[string](b, `document.querySelector("#error").innerText`); !strings.Contains(text, "does not know this race any more. Press Run again.") {
		t.Errorf("the page says %q", text)
	}
	b.do(chromedp.SetValue(`input[name="size"]`, "5"), chromedp.Click("#run"), chromedp.WaitVisible("#again"))
	if _, right := b.verdicts(); !strings.HasPrefix(right, "✓ sold ") {
		t.Errorf("after the restart: %s", right)
	}
}
