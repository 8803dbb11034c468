// Package ui tests the dashboard in Chromium.
package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var screenshots = flag.String("screenshots", "", "a `folder` that gets the pictures of docs/dashboard.md")

// missing skips a test whose tool is missing; on CI it fails instead.
func missing(t *testing.T, tool string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed: CI runs every test", tool)
	}
	t.Skipf("skipped: %s is not installed", tool)
}

// browser is a tab of Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// patience bounds each wait for a page, on a machine under load.
const patience = time.Minute

func start(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		missing(t, "chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1100, 720))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses its sandbox to root
	}
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	b := &browser{t, ctx}
	// A page must neither fail nor try to do what its policy forbids. Listen also starts the browser, which lives as long as ctx.
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page fails: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Source == log.EntrySourceSecurity {
				t.Errorf("the page breaks its policy: %s", e.Entry.Text)
			}
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError {
				t.Errorf("the page complains: %v", e.Args)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return b
}

// call sends a command of the protocol to the browser.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	b.do(command.Method, func(ctx context.Context, tab *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, tab, command, params)
		return none, err
	})
}

func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.fail(what, err)
	}
}

// fail ends the test, and says what the page shows.
func (b *browser) fail(what string, why error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText.slice(0, 2000)"))
	b.t.Fatalf("%s: %v\n%s %v", what, why, text, err)
}

// eval evaluates an expression in the page. If its result is a promise, eval waits for it.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.fail(expression, err)
	}
	return v
}

// until waits until an expression is true in the page, or in the page that follows.
func (b *browser) until(expression string) {
	b.t.Helper()
	err := error(nil)
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(20 * time.Millisecond) { // the browser is another process
		var there bool
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		there, err = chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		if err == nil && there { // an error may mean that the page is just going away
			return
		}
	}
	b.fail("waits for "+expression, err)
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.do(url, chromedp.Navigate(url))
	b.until("document.readyState === 'complete' && document.querySelector('main')")
}

// press presses keys, and waits for the page that follows if leads is true.
func (b *browser) press(keys string, leads bool) {
	b.t.Helper()
	if leads {
		eval[bool](b, "window.old = true")
	}
	b.do("keys", chromedp.KeyEvent(keys))
	if leads {
		b.until("!window.old && document.readyState === 'complete'")
	}
}

// tab presses Tab until an element that a selector matches has the focus.
func (b *browser) tab(selector string) {
	b.t.Helper()
	for range 150 {
		if eval[bool](b, "document.activeElement.matches("+quote(selector)+")") {
			return
		}
		b.do("Tab", chromedp.KeyEvent(kb.Tab))
	}
	b.t.Fatalf("Tab does not lead to %s", selector)
}

func quote(text string) string {
	q, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always has a form in JSON
	}
	return string(q)
}

// logIn logs in by the form, with the keyboard.
func (b *browser) logIn(url, user, password string) {
	b.t.Helper()
	b.open(url + "/ui/login")
	eval[bool](b, "document.getElementById('user').value = "+quote(user)+", document.getElementById('password').focus(), true")
	b.press(password+kb.Enter, true)
	b.until("location.pathname === '/ui/' && document.getElementById('live') !== null")
}

// look sets the size of the window and the scheme of colours.
func (b *browser) look(scheme string, width, height int64) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.do("the window", chromedp.EmulateViewport(width, height))
}

// picture takes a picture of the page, if the test was asked for one.
func (b *browser) picture(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.fail("picture", err)
	}
	small, err := shrink(picture)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name), small, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// axe returns the text of axe-core, which npm installs.
func axe(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		missing(t, "npm")
	}
	file := filepath.Join("node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(file); err != nil {
		if out, err := exec.Command("npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
			t.Fatalf("npm: %v\n%s", err, out)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// accessible fails the test if axe-core finds a violation in the page.
func (b *browser) accessible(axe string) {
	b.t.Helper()
	if !eval[bool](b, "window.axe !== undefined") {
		b.do("axe", chromedp.Evaluate[chromedp.Void](axe))
	}
	type result struct {
		Where      string
		Passes     int
		Violations []string
	}
	found := eval[result](b, `axe.run(document, {resultTypes: ['violations', 'passes']}).then((r) => ({Where: location.pathname, Passes: r.passes.length,
		Violations: r.violations.map((v) => v.id + ': ' + v.help + ': ' + v.nodes.map((n) => n.html.slice(0, 200)).join(' | '))}))`)
	if len(found.Violations) > 0 || found.Passes < 10 {
		b.t.Errorf("%s: %d rules hold; violations:\n%s", found.Where, found.Passes, strings.Join(found.Violations, "\n"))
	}
}

// answer is what the API of the page's node says to a request from the page.
func (b *browser) answer(method, path, body string) int {
	b.t.Helper()
	if body != "" {
		body = ", body: " + quote(body)
	}
	return eval[int](b, fmt.Sprintf("fetch(%s, {method: %s, headers: {'Content-Type': 'application/json'}%s}).then((r) => r.status)", quote("/api/v1/"+path), quote(method), body))
}

// shrink gives a picture at most 64 colours: the most frequent ones, and for each other colour the nearest of these.
func shrink(picture []byte) ([]byte, error) {
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	count := map[color.RGBA]int{}
	bounds := img.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(img.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(uint32(a.R)<<16|uint32(a.G)<<8|uint32(a.B), uint32(b.R)<<16|uint32(b.G)<<8|uint32(b.B)))
	})
	var few color.Palette
	for _, c := range colors[:min(len(colors), 64)] {
		few = append(few, c)
	}
	small := image.NewPaletted(bounds, few)
	nearest := map[color.RGBA]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := at(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(few.Index(c))
				nearest[c] = i
			}
			small.SetColorIndex(x, y, i)
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small)
	return b.Bytes(), err
}
