package web

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func (n *node) me(cookie string) int {
	return n.visit(visit{target: "/api/v1/me", cookie: cookie}).Code
}

func TestCookie(t *testing.T) {
	for _, tls := range []bool{false, true} {
		n := newNode(t)
		n.TLS = tls
		w := n.visit(visit{method: http.MethodPost, target: "/api/v1/login", body: `{"user":"op","password":"p"}`})
		cookies := w.Result().Cookies()
		if len(cookies) != 1 {
			t.Fatal(cookies)
		}
		c := cookies[0]
		name := "lockstep-8379"
		if tls {
			name = "__Host-" + name
		}
		if c.Name != name || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.Secure != tls {
			t.Errorf("TLS %v: %+v", tls, c)
		}
		if len(c.Value) < 22 || c.Value == n.visitLogin().Value { // 22 characters of 6 bits are 132 bits
			t.Errorf("the value is %q", c.Value)
		}
	}
}

func (n *node) visitLogin() *http.Cookie {
	return n.visit(visit{method: http.MethodPost, target: "/api/v1/login", body: `{"user":"op","password":"p"}`}).Result().Cookies()[0]
}

// TestSessionsEnd: a session ends with its time, with its user's password, with its connections, and by a logout.
func TestSessionsEnd(t *testing.T) {
	for what, end := range map[string]func(n *node, cookie string){
		"unused": func(n *node, _ string) { n.change(func() { n.now += idleTime + 1 }) },
		"a page refreshed": func(n *node, cookie string) {
			n.change(func() { n.now += idleTime })
			n.visit(visit{target: "/api/v1/me", cookie: cookie, header: http.Header{liveHeader: {"1"}}})
			n.change(func() { n.now++ })
		},
		"a stream opened again": func(n *node, cookie string) {
			n.change(func() { n.now += idleTime })
			n.stream(cookie).text()
			n.change(func() { n.now++ })
		},
		"too old": func(n *node, cookie string) {
			for range wholeTime / idleTime {
				n.change(func() { n.now += idleTime })
				if got := n.me(cookie); got != http.StatusOK {
					t.Errorf("used all the time: %d", got)
				}
			}
			n.change(func() { n.now++ })
		},
		"the password has changed": func(n *node, _ string) { n.change(func() { n.right = false }) },
		"the user was deleted":     func(n *node, _ string) { n.change(func() { n.conns[1].Close() }) },
		"the connection for commands has ended": func(n *node, _ string) {
			for _, s := range n.logins() {
				if s.user == "op" {
					s.link.conn.Close()
				}
			}
		},
		"logout": func(n *node, cookie string) {
			if w := n.visit(visit{method: http.MethodPost, target: "/api/v1/logout", body: "{}", cookie: cookie}); w.Code != http.StatusOK || w.Result().Cookies()[0].MaxAge >= 0 {
				t.Errorf("logout: %d %v", w.Code, w.Result().Cookies())
			}
		},
		"a user without a password, from elsewhere": func(n *node, _ string) {
			n.TLS = true
			n.change(func() { n.near = false })
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.now = time.Hour
				cookie, other := n.logIn(t, "op"), n.logIn(t, "other")
				if a, b := n.me(cookie), n.me(other); a != http.StatusOK || b != http.StatusOK {
					t.Fatal(a, b)
				}
				end(n, cookie)
				synctest.Wait()
				if got := n.me(strings.Replace(cookie, "lockstep", map[bool]string{true: "__Host-lockstep", false: "lockstep"}[n.TLS], 1)); got != http.StatusUnauthorized {
					t.Errorf("the session goes on: %d", got)
				}
				n.end()
				synctest.Wait()
			})
		})
	}
}

// TestSessionsEndByThemselves: a session that nobody uses gives its connections back.
func TestSessionsEndByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.logIn(t, "op")
		n.change(func() { n.right = false })
		time.Sleep(checkTime) // the clock of the bubble
		synctest.Wait()
		if got := len(n.logins()); got != 0 {
			t.Errorf("%d sessions", got)
		}
	})
}

func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		first := ""
		for i := range mostSessions / mostOfUser {
			for range mostOfUser + 1 {
				n.change(func() { n.now += loginEvery })
				cookie := n.logIn(t, fmt.Sprint("user", i))
				if first == "" {
					first = cookie
				}
			}
		}
		if got := len(n.logins()); got != mostSessions {
			t.Errorf("%d sessions", got)
		}
		if got := n.me(first); got != http.StatusUnauthorized {
			t.Errorf("the first session of a user with one too many: %d", got)
		}
		for i := range mostSessions - mostSessions/mostOfUser { // as many users as there are places: each has one at last
			n.change(func() { n.now += loginEvery })
			n.logIn(t, fmt.Sprint("late", i))
			if got := len(n.logins()); got != mostSessions {
				t.Errorf("%d sessions", got)
			}
		}
		n.change(func() { n.now += time.Minute })
		if w := n.visit(visit{method: http.MethodPost, target: "/api/v1/login", body: `{"user":"last","password":"p"}`}); w.Code != http.StatusServiceUnavailable {
			t.Errorf("one user too many: %d", w.Code)
		}
		n.end()
		synctest.Wait()
	})
}

func TestThrottle(t *testing.T) {
	h := throttle{free: New(Config{}).throttle.free}
	allowed := func(now time.Duration, remote string) (count int) {
		for h.allow(now, remote) {
			count++
		}
		return count
	}
	if got := allowed(0, "192.0.2.1:1"); got != loginBurst {
		t.Errorf("%d attempts at once", got)
	}
	if got := allowed(0, "192.0.2.2:1"); got != loginBurst {
		t.Errorf("%d attempts of another address", got)
	}
	if got := allowed(loginEvery, "192.0.2.1:9"); got != 1 {
		t.Errorf("%d attempts after %v", got, loginEvery)
	}
	if a, b := allowed(0, "[2001:db8::1]:1"), allowed(0, "[2001:db8::2]:1"); a != loginBurst || b != 0 {
		t.Errorf("%d and %d attempts of one network", a, b)
	}
	for i := range 2 * mostOrigins {
		h.allow(0, net.JoinHostPort(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), "1"))
	}
	if len(h.free) > mostOrigins {
		t.Errorf("%d addresses are remembered", len(h.free))
	}
	if got := allowed(loginEvery, "192.0.2.2:1"); got > 1 {
		t.Errorf("a flood from other addresses made it forget one: %d attempts", got)
	}
}

// TestPostsOfOtherPages: a page elsewhere cannot make a browser change anything.
func TestPostsOfOtherPages(t *testing.T) {
	for _, k := range []struct {
		header http.Header
		want   int
	}{
		{http.Header{}, 200}, // no browser
		{http.Header{"Origin": {"http://localhost:8379"}}, 200},
		{http.Header{"Origin": {"http://LOCALHOST:8379"}}, 200},
		{http.Header{"Origin": {"http://localhost:8379"}, "Sec-Fetch-Site": {"same-origin"}}, 200},
		{http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
		{http.Header{"Origin": {"http://localhost:8379", "http://localhost:8379"}}, 403},
		{http.Header{"Origin": {"https://localhost:8379"}}, 403},
		{http.Header{"Origin": {"http://localhost"}}, 403},
		{http.Header{"Origin": {"http://localhost:8380"}}, 403},
		{http.Header{"Origin": {"http://localhost:8379.evil.example"}}, 403},
		{http.Header{"Origin": {"null"}}, 403},
		{http.Header{"Origin": {""}}, 403},
		{http.Header{"Origin": {"http://localhost:8379"}, "Sec-Fetch-Site": {"cross-site"}}, 403},
		{http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
		{http.Header{"Sec-Fetch-Site": {"none"}}, 403},
		{http.Header{"Content-Type": {"text/plain"}}, 415},
		{http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, 415},
		{http.Header{"Content-Type": {"text/plain; application/json"}}, 415},
		{http.Header{"Content-Type": {"application/json; charset=utf-8"}}, 200},
	} {
		n := newNode(t)
		cookie := n.logIn(t, "op")
		n.change(func() { n.reply = goodReply })
		n.commands()
		w := n.visit(visit{method: http.MethodPost, target: "/api/v1/lock/force", cookie: cookie, body: `{"key":"a","reason":"r"}`, header: k.header})
		if ran := len(n.commands()) > 0; w.Code != k.want || ran != (k.want == 200) {
			t.Errorf("%v: %d, ran %v", k.header, w.Code, ran)
		}
	}
}

// TestBeyondLoopback: from elsewhere, or under a foreign name, the dashboard needs TLS and a user with a password, unless protected mode
// is off.
func TestBeyondLoopback(t *testing.T) {
	for _, k := range []struct {
		near, tls, secret, shielded, foreign bool
		login, description                   int
	}{
		{near: true, shielded: true, login: 200, description: 200},
		{near: false, shielded: true, secret: true, login: 403, description: 403},
		{near: false, shielded: true, tls: true, login: 403, description: 200},
		{near: false, shielded: true, tls: true, secret: true, login: 200, description: 200},
		{near: false, shielded: false, login: 200, description: 200},
		{near: false, foreign: true, login: 403, description: 200},
		{near: false, foreign: true, secret: true, login: 200, description: 200},
	} {
		n := newNode(t)
		n.near, n.Handler.TLS, n.secret, n.shielded, n.foreign = k.near, k.tls, k.secret, k.shielded, k.foreign
		if w := n.visit(visit{method: http.MethodPost, target: "/api/v1/login", body: `{"user":"op","password":"p"}`}); w.Code != k.login {
			t.Errorf("%+v: login %d %s", k, w.Code, w.Body)
		}
		if w := n.visit(visit{target: "/api/v1/openapi.json"}); w.Code != k.description {
			t.Errorf("%+v: description %d", k, w.Code)
		}
		if ran := len(n.ran) > 0; ran != (k.near || k.tls || !k.shielded) {
			t.Errorf("%+v: the password was tried: %v", k, ran)
		}
		if got := len(n.logins()); (got > 0) != (k.login == 200) {
			t.Errorf("%+v: %d logins", k, got)
		}
	}
}

// TestStrangersLearnNoNames: from elsewhere, a name that no user has gets the same answer as a wrong password, and as few tries.
func TestStrangersLearnNoNames(t *testing.T) {
	answers := map[string]bool{}
	for _, known := range []bool{true, false} {
		n := newNode(t)
		n.near, n.Handler.TLS, n.secret = false, true, known
		n.reply = func([]string) string { return "-WRONGPASS invalid\r\n" }
		login := visit{method: http.MethodPost, target: "/api/v1/login", body: `{"user":"op","password":"p"}`}
		w := n.visit(login)
		answers[fmt.Sprint(w.Code, w.Body)] = true
		for range loginBurst {
			w = n.visit(login)
		}
		if w.Code != http.StatusTooManyRequests {
			t.Errorf("known %v: %d %s", known, w.Code, w.Body)
		}
	}
	if len(answers) != 1 {
		t.Errorf("%v", answers)
	}
}

// TestHeaders: every answer has the headers that bind a browser.
func TestHeaders(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	for _, target := range []string{"/api/v1/me", "/api/v1/nothing", "/api/v1/lock/force", "/api/v1/", "/ui/nothing"} {
		header := n.visit(visit{target: target, cookie: cookie}).Header()
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY"} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s: %q", target, name, got)
			}
		}
		csp := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'", "script-src 'self';"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: %q lacks %s", target, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", target, header)
		}
	}
}

// TestAbandonedChange: a change whose request has ended before its turn does not happen.
func TestAbandonedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		cookie := n.logIn(t, "op")
		wake := make(chan struct{})
		n.change(func() {
			n.reply = func(args []string) string {
				if args[0] == "LOCK.INFO" {
					n.mu.Unlock()
					<-wake
					n.mu.Lock()
					return "$-1\r\n"
				}
				return ":1\r\n"
			}
		})
		n.commands()
		done := make(chan int, 2)
		go func() { done <- n.visit(visit{target: "/api/v1/lock?key=a", cookie: cookie}).Code }()
		synctest.Wait()
		go func() {
			done <- n.visit(visit{method: http.MethodPost, target: "/api/v1/lock/force", cookie: cookie, body: `{"key":"a","reason":"r"}`}).Code
		}()
		if a, b := <-done, <-done; a != http.StatusGatewayTimeout || b != http.StatusGatewayTimeout {
			t.Errorf("%d %d", a, b)
		}
		close(wake)
		synctest.Wait()
		if got := n.commands(); len(got) != 1 {
			t.Errorf("%q", got)
		}
		// The connection is still of use.
		n.change(func() { n.reply = goodReply })
		if got := n.visit(visit{target: "/api/v1/lock?key=a", cookie: cookie}).Code; got != http.StatusOK {
			t.Errorf("later: %d", got)
		}
		n.end()
		synctest.Wait()
	})
}

// TestQueueIsBounded: a session whose commands hang refuses further requests at once.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		cookie := n.logIn(t, "op")
		n.change(func() { n.reply = func([]string) string { return "" } })
		codes := make(chan int)
		const most = queued + 1 // one of them runs
		for range 3 * most {
			go func() { codes <- n.visit(visit{target: "/api/v1/lock?key=a", cookie: cookie}).Code }()
		}
		count := map[int]int{}
		for range 3 * most {
			count[<-codes]++
		}
		if full := count[http.StatusServiceUnavailable]; full < most {
			t.Errorf("%v", count)
		}
		n.end()
		synctest.Wait()
	})
}
