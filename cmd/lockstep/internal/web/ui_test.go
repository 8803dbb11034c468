package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// hostile are texts that a stranger may give to locks, owners and reasons.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onfocus='alert(1)' autofocus='`, `</textarea></select></title><script src=//evil.example></script>`,
	"javascript:alert(1)", "//evil.example/", "a\x00b\r\nSet-Cookie: x=y\x1b[2J", "\xff\xfe\xf0\x28", "\u202eevil\u2066", "{{.Form}}", "a&lt;b&#x27;", "*?[", strings.Repeat("\xe2\x82<", 400_000), "&db=3&key=other",
}

// echoing answers every command with a text wherever a reply has one.
func echoing(text string) func([]string) string {
	row := array(bulk("key"), bulk(text), bulk("kind"), bulk(text), bulk("owner"), bulk(text), bulk("id"), bulk(text), bulk("state"), bulk(text), bulk("client"), bulk(text), bulk("peer"), bulk(text),
		bulk("event"), bulk(text), bulk("user"), bulk(text), bulk("reason"), bulk(text), bulk("queue"), bulk(text), bulk("token"), bulk(text), bulk("leader"), ":1\r\n", bulk(text[:min(len(text), 100)]), bulk(text))
	return func(args []string) string {
		switch args[0] {
		case "AUTH", "PSUBSCRIBE", "SELECT":
			return "+OK\r\n"
		case "INFO", "CLIENT":
			return bulk("role:" + text + "\r\n" + "id=1 name=" + text + " user=" + text + "\n")
		case "LOCK.LIST":
			return array(bulk("7"), array(row))
		case "LOCK.INFO":
			return array(bulk("key"), bulk(text), bulk("kind"), bulk(text), bulk("limit"), bulk(text), bulk("owners"), array(row))
		case "LOCK.STATS":
			return array(bulk("top"), array(row), bulk(text[:min(len(text), 100)]), bulk(text))
		case "LOCK.FORCE":
			return "-ERR " + strings.NewReplacer("\r", "", "\n", "").Replace(text[:min(len(text), 1000)]) + "\r\n"
		}
		return array(row)
	}
}

// TestPagesEscape: whatever texts strangers give, a page has no script, address or form but its own.
func TestPagesEscape(t *testing.T) {
	for _, text := range hostile {
		n := newNode(t)
		cookie := n.logIn(t, "op")
		n.change(func() { n.reply = echoing(text) })
		q := url.QueryEscape(text[:min(len(text), 2000)])
		for _, target := range []string{"/ui/", "/ui/locks?count=2", "/ui/locks?count=1&q=" + q + "&owner=" + q + "&kind=" + q, "/ui/lock?key=" + q, "/ui/lock?key=" + q + "&ended=" + q, "/ui/clients", "/ui/cluster?done=" + q, "/ui/events", "/ui/login?next=" + q, "/ui/" + url.PathEscape(text[:min(len(text), 2000)])} {
			w := n.visit(visit{target: target, cookie: cookie})
			if w.Code != http.StatusOK && w.Code != http.StatusSeeOther && w.Code != http.StatusNotFound {
				t.Errorf("%.60q %.60s: %d", text, target, w.Code)
			}
			checkPage(t, fmt.Sprintf("%.60q %.60s", text, target), w.Body.String())
			if to := w.Header().Get("Location"); to != "" && !strings.HasPrefix(to, "/ui/") {
				t.Errorf("%.60q %.60s leads to %q", text, target, to)
			}
		}
		form := url.Values{"form": {n.form()}, "reason": {text[:min(len(text), 900)]}}
		w := n.post(cookie, "/ui/lock/force?key="+q, form)
		checkPage(t, fmt.Sprintf("%.60q force", text), w.Body.String())
		w = n.post("", "/ui/login?next="+q, url.Values{"user": {text[:min(len(text), 900)]}, "password": {"p"}})
		checkPage(t, fmt.Sprintf("%.60q login", text), w.Body.String())
		if to := w.Header().Get("Location"); to != "" && to != "/ui/" {
			t.Errorf("%.60q: login leads to %q", text, to)
		}
	}
}

// form returns what the forms of the only session must send back.
func (n *node) form() string { return n.logins()[0].form }

func (n *node) post(cookie, target string, form url.Values) *httptest.ResponseRecorder {
	return n.visit(visit{method: http.MethodPost, target: target, cookie: cookie, body: form.Encode(),
		header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {"http://localhost:8379"}}})
}

var ownAddress = regexp.MustCompile(`^(/ui/|#content$|/api/v1/events(\?all=1)?$)`)

func checkPage(t *testing.T, what, page string) {
	t.Helper()
	if !utf8.ValidString(page) || len(page) > 512<<10 {
		t.Errorf("%s: %d bytes, UTF-8: %v", what, len(page), utf8.ValidString(page))
	}
	if i := strings.IndexFunc(page, func(r rune) bool {
		return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u2066'
	}); i >= 0 {
		t.Errorf("%s: a control character at %d: %q", what, i, page[i:min(len(page), i+20)])
	}
	scripts := 0
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
			continue
		}
		token := z.Token()
		switch token.Data {
		case "script":
			scripts++
		case "img", "iframe", "object", "embed", "base", "style", "svg", "textarea":
			t.Errorf("%s: a tag %s", what, token)
		}
		for _, a := range token.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "style", a.Key == "formaction":
				t.Errorf("%s: %s", what, token)
			case (a.Key == "href" || a.Key == "src" || a.Key == "action" || a.Key == "data-events") && !ownAddress.MatchString(a.Val):
				t.Errorf("%s: %s", what, token)
			}
		}
	}
	if scripts > 1 || strings.Count(page, "<script") != scripts {
		t.Errorf("%s: %d scripts", what, scripts)
	}
}

// TestNoButtonWithoutTheRight: a page has no form for what its user may not do, and the form of another page does not help.
func TestNoButtonWithoutTheRight(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	n.change(func() { n.reply = goodReply })
	for path, action := range map[string]string{"/ui/lock?key=a": "/ui/lock/force", "/ui/cluster": "/ui/cluster/"} {
		if page := n.visit(visit{target: path, cookie: cookie}).Body.String(); !strings.Contains(page, `action="`+action) {
			t.Errorf("%s has no form: %s", path, page)
		}
		n.change(func() {
			n.may = func(_ string, command ...string) bool {
				return command[0] != "lock.force" && (command[0] != "lockstep" || command[1] == "members")
			}
		})
		if page := n.visit(visit{target: path, cookie: cookie}).Body.String(); strings.Contains(page, `action="`+action) {
			t.Errorf("%s has a form: %s", path, page)
		}
		n.change(func() { n.may = func(string, ...string) bool { return true } })
	}
	n.change(func() { n.reply = func([]string) string { return "-NOPERM no\r\n" } })
	if w := n.post(cookie, "/ui/lock/force?key=a", url.Values{"form": {n.form()}, "reason": {"r"}}); w.Code != http.StatusForbidden {
		t.Errorf("%d", w.Code)
	}
}

// TestForms: a form runs its command once, if it is of this login, and confirmed.
func TestForms(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	n.change(func() { n.reply = goodReply })
	good := n.form()
	for _, k := range []struct {
		path     string
		fields   url.Values
		status   int
		location string
		ran      string
	}{
		{"/ui/lock/force?db=2&key=%FFa", url.Values{"reason": {"it hangs"}, "token": {"7"}}, 303, "/ui/lock?db=2&key=%FFa&ended=1", "SELECT 2,LOCK.FORCE \xffa REASON it hangs TOKEN 7"},
		{"/ui/lock/force?key=a", url.Values{"reason": {""}}, 400, "", ""},
		{"/ui/lock/force?key=a", url.Values{"reason": {"r"}, "form": {"x"}}, 403, "", ""},
		{"/ui/cluster/transfer", url.Values{"member": {"n2"}}, 303, "/ui/cluster?done=1", "SELECT 0,LOCKSTEP TRANSFER n2"},
		{"/ui/cluster/transfer", url.Values{"member": {"n2"}, "form": {""}}, 403, "", ""},
		{"/ui/cluster/remove", url.Values{"member": {"n2"}, "confirm": {"n3"}}, 400, "", ""},
		{"/ui/cluster/remove", url.Values{"member": {"n2"}, "confirm": {"n2"}}, 303, "/ui/cluster?done=1", "LOCKSTEP REMOVE n2"},
		{"/ui/cluster/remove", url.Values{}, 400, "", ""},
		{"/ui/cluster/remove?member=n2&confirm=n2&form=" + good, url.Values{"form": {}}, 403, "", ""},
		{"/ui/logout", url.Values{"form": {"x"}}, 403, "", ""},
		{"/ui/logout", url.Values{}, 303, "/ui/login", ""},
	} {
		if !k.fields.Has("form") {
			k.fields.Set("form", good)
		}
		n.commands()
		w := n.post(cookie, k.path, k.fields)
		if got := strings.Join(n.commands(), ","); w.Code != k.status || w.Header().Get("Location") != k.location || got != k.ran {
			t.Errorf("%s %v: %d %q, ran %q", k.path, k.fields, w.Code, w.Header().Get("Location"), got)
		}
	}
	if got := n.me(cookie); got != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", got)
	}
}

// TestLoginForm: a login leads where the user wanted to go, and nowhere else. A form of another site does not log in.
func TestLoginForm(t *testing.T) {
	n := newNode(t)
	if w := n.visit(visit{target: "/ui/lock?db=1&key=%FF"}); w.Code != 303 || w.Header().Get("Location") != "/ui/login?next=%2Fui%2Flock%3Fdb%3D1%26key%3D%25FF" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for next, want := range map[string]string{
		"/ui/lock?db=1&key=%FF": "/ui/lock?db=1&key=%FF", "/ui/locks": "/ui/locks", "": "/ui/", "//evil.example/ui/": "/ui/", "https://evil.example/ui/": "/ui/", `/\evil.example`: "/ui/", "/ui/../metrics": "/ui/",
		"/ui/login": "/ui/", "/ui/logout": "/ui/", "javascript:alert(1)": "/ui/", "/ui/locks?q=a\r\nX: y": "/ui/", "/ui/locks#a": "/ui/locks", "/api/v1/me": "/ui/",
	} {
		n.change(func() { n.now += loginEvery })
		w := n.post("", "/ui/login?next="+url.QueryEscape(next), url.Values{"user": {"op"}, "password": {"p"}})
		if got := w.Header().Get("Location"); w.Code != 303 || got != want {
			t.Errorf("%q: %d, leads to %q", next, w.Code, got)
		}
	}
	for _, header := range []http.Header{{"Origin": {"https://evil.example"}}, {"Origin": {"null"}}, {}} {
		header.Set("Content-Type", "application/x-www-form-urlencoded")
		if w := n.visit(visit{method: http.MethodPost, target: "/ui/login", body: "user=op&password=p", header: header}); w.Code != http.StatusForbidden || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%v: %d", header, w.Code)
		}
	}
	n.change(func() { n.reply = func([]string) string { return "-WRONGPASS no\r\n" } })
	w := n.post("", "/ui/login", url.Values{"user": {"op"}, "password": {"the secret"}})
	if page := w.Body.String(); w.Code != http.StatusUnauthorized || !strings.Contains(page, "wrong user name") || strings.Contains(page, "the secret") {
		t.Errorf("%d %s", w.Code, page)
	}
}

// TestSearchField: a name typed in full is found at once, and a part of a name, too.
func TestSearchField(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	n.change(func() { n.reply = goodReply })
	for q, want := range map[string]string{
		"order:17": "LOCK.INFO order:17,LOCK.LIST CURSOR 0 COUNT 100 MATCH *order:17*", "order:*": "LOCK.LIST CURSOR 0 COUNT 100 MATCH order:*", "": "LOCK.LIST CURSOR 0 COUNT 100",
	} {
		n.commands()
		n.visit(visit{target: "/ui/locks?q=" + url.QueryEscape(q), cookie: cookie})
		if got := strings.TrimPrefix(strings.Join(n.commands(), ","), "SELECT 0,"); got != want {
			t.Errorf("%q: %q", q, got)
		}
	}
}

// TestStatsAfterATimeOfTrouble: a request that has failed does not keep the figures from those that come later.
func TestStatsAfterATimeOfTrouble(t *testing.T) {
	for what, hangs := range map[string]time.Duration{"the client left": 2 * time.Millisecond, "the node was late": askTime + time.Second} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				begun := time.Now()
				n.Now = func() time.Duration { return time.Since(begun) }
				cookie := n.logIn(t, "op")
				patience := hangs - time.Millisecond
				n.change(func() {
					n.reply = func(args []string) string {
						if args[0] == "LOCK.STATS" && hangs > 0 {
							n.mu.Unlock()
							time.Sleep(hangs)
							n.mu.Lock()
							hangs = 0
						}
						return goodReply(args)
					}
				})
				overview := func(patience time.Duration) string {
					r := visit{target: "/api/v1/overview", cookie: cookie}.request()
					ctx, cancel := context.WithTimeout(r.Context(), patience)
					defer cancel()
					w := httptest.NewRecorder()
					n.ServeHTTP(w, r.WithContext(ctx))
					return w.Body.String()
				}
				if got := overview(patience); strings.Contains(got, `"stats":{"grants`) {
					t.Errorf("at first: %s", got)
				}
				time.Sleep(2 * time.Second)
				if got := overview(time.Minute); !strings.Contains(got, `"stats":{"grants`) {
					t.Errorf("later: %s", got)
				}
				n.end()
				synctest.Wait()
			})
		})
	}
}

// TestPageWithoutHistory: a page of a lock stands without the history that the server does not know.
func TestPageWithoutHistory(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	for reply, want := range map[string]string{
		"-ERR unknown command 'LOCK.HISTORY', with args beginning with: \r\n":                                          "This version has no history.",
		array(array(bulk("event"), bulk("forced"), bulk("at"), ":1700000000123\r\n", bulk("reason"), bulk("it hung"))): "it hung", array(): "Nothing is remembered.",
	} {
		refusingOnly("LOCK.HISTORY", reply)(n, nil)
		if page := n.visit(visit{target: "/ui/lock?key=a", cookie: cookie}).Body.String(); !strings.Contains(page, want) || !strings.Contains(page, "End this lock") {
			t.Errorf("no %q in %s", want, page)
		}
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"a b": "a b", "é日": "é日", "\x00\n": `\x00\n`, "\xff": `\xff`, "\u202e": `\u202e`, "\u200b": `\u200b`, "\u00a0": `\u00a0`, "'": "'", "\ufe0f": `\ufe0f`, strings.Repeat("x", 300): strings.Repeat("x", 200) + "… (300 bytes)",
	} {
		if got := visible(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// TestTimelineIsKept: a page that fetches itself again does not make the node look through its whole history each time.
func TestTimelineIsKept(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	n.change(func() {
		n.reply = func(args []string) string {
			if args[0] == "LOCK.HISTORY" {
				n.now += 100 * time.Millisecond
			}
			return goodReply(args)
		}
	})
	asked := func(key string, live bool, want int) {
		t.Helper()
		n.commands()
		header := http.Header{}
		if live {
			header.Set(liveHeader, "1")
		}
		n.visit(visit{target: "/ui/lock?key=" + key, cookie: cookie, header: header})
		if got := strings.Count(strings.Join(n.commands(), " "), "LOCK.HISTORY"); got != want {
			t.Errorf("%s, live %v: asked %d times, want %d", key, live, got, want)
		}
	}
	asked("a", false, 1)
	asked("a", true, 0)
	n.change(func() { n.now += keptShare*100*time.Millisecond - 1 })
	asked("a", true, 0)
	n.change(func() { n.now++ })
	asked("a", true, 1)
	asked("b", true, 1)
	asked("b", true, 0)
	asked("b", false, 1) // who opens a page sees what is there now
}

// TestGrantRate: the overview has the grants per second of the time since it was last looked at.
func TestGrantRate(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	n.change(func() { n.reply = goodReply })
	look := func(granted int, want string) {
		t.Helper()
		refusingOnly("LOCK.STATS", array(bulk("kinds"), array(bulk("plain"), array(bulk("granted"), fmt.Sprintf(":%d\r\n", granted)), bulk("shared"), array(bulk("granted"), ":5\r\n"))))(n, nil)
		page := n.visit(visit{target: "/ui/", cookie: cookie}).Body.String()
		if !strings.Contains(page, "<dt>Grants per second</dt><dd>"+want+"</dd>") || !strings.Contains(page, "by the kind of the lock") {
			t.Errorf("no rate %q in %s", want, page[strings.Index(page, "<dl"):])
		}
	}
	n.visit(visit{target: "/api/v1/overview", cookie: cookie})
	n.change(func() { n.now += 2 * statsTime })
	look(10_002, "1000") // goodReply had 7
	n.change(func() { n.now += statsTime - 1 })
	look(20_000, "1000") // the figures are not asked for again
	n.change(func() { n.now++ })
	look(0, "0") // the node has restarted
}
