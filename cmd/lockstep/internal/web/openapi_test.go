package web

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// description returns the statuses of each route in openapi.json.
func description(t *testing.T) map[string]map[int]bool {
	t.Helper()
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Responses map[string]struct{ Description string }
		}
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.") {
		t.Errorf("version %q", doc.OpenAPI)
	}
	described := map[string]map[int]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			name := strings.ToUpper(method) + " " + path
			described[name] = map[int]bool{}
			for status, r := range op.Responses {
				code, err := strconv.Atoi(status)
				if err != nil || r.Description == "" {
					t.Errorf("%s: response %q", name, status)
				}
				described[name][code] = true
			}
		}
	}
	return described
}

func TestDescriptionHasEveryRoute(t *testing.T) {
	var routes []string
	for _, r := range apiRoutes() {
		routes = append(routes, r.method+" "+r.path)
	}
	slices.Sort(routes)
	if got := slices.Sorted(maps.Keys(description(t))); !slices.Equal(got, routes) {
		t.Errorf("described: %q\nroutes: %q", got, routes)
	}
}

// wellFormed are requests that each route takes.
var wellFormed = map[string]visit{
	"POST /api/v1/login":            {body: `{"user":"op","password":"p"}`},
	"POST /api/v1/logout":           {body: `{}`},
	"GET /api/v1/lock":              {target: "?key=a"},
	"GET /api/v1/lock/history":      {target: "?key=a"},
	"POST /api/v1/lock/force":       {body: `{"key":"a","reason":"it hangs","owner":"o","token":7}`},
	"POST /api/v1/cluster/transfer": {body: `{"member":"n2"}`},
	"POST /api/v1/cluster/remove":   {body: `{"member":"n2"}`},
}

func goodReply(args []string) string {
	switch strings.Join(args[:min(2, len(args))], " ") {
	case "CLIENT LIST":
		return bulk("id=1 addr=127.0.0.1:5 name= user=op\nid=2 addr=127.0.0.1:6 name=x user=op\n")
	case "LOCKSTEP MEMBERS":
		return array(array(bulk("id"), bulk("n1"), bulk("leader"), ":1\r\n"))
	}
	switch args[0] {
	case "INFO":
		return bulk("# Server\r\nrole:master\r\nuptime_in_seconds:5\r\n")
	case "LOCK.LIST":
		return array(bulk("0"), array(array(bulk("key"), bulk("a"), bulk("ttl"), ":5\r\n")))
	case "LOCK.INFO":
		return array(bulk("key"), bulk("a"), bulk("owners"), array(array(bulk("owner"), bulk("o"))))
	case "LOCK.WAITERS", "LOCK.HISTORY":
		return array()
	case "LOCK.STATS":
		return array(bulk("kinds"), array(bulk("plain"), array(bulk("granted"), ":7\r\n")), bulk("top"), array(array(bulk("key"), bulk("a"))))
	case "LOCK.FORCE":
		return ":1\r\n"
	}
	return "+OK\r\n"
}

// TestDescriptionIsTrue provokes every status that openapi.json has, at every route that has it, and finds no other.
func TestDescriptionIsTrue(t *testing.T) {
	for name, statuses := range description(t) {
		seen := map[int]bool{}
		method, path, _ := strings.Cut(name, " ")
		for what, play := range scenarios {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.reply = goodReply
				v := wellFormed[name]
				v.method, v.target = method, path+v.target
				v.cookie = n.logIn(t, "op")
				play(n, &v)
				status := n.status(v)
				if seen[status] = true; !statuses[status] {
					t.Errorf("%s, %s: %d is not described", name, what, status)
				}
				n.end()
				synctest.Wait()
			})
		}
		for status := range statuses {
			if !seen[status] {
				t.Errorf("%s: nothing leads to %d", name, status)
			}
		}
	}
}

// status makes a request, and returns its status. A stream ends after a while.
func (n *node) status(v visit) int {
	r := v.request()
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	w := httptest.NewRecorder()
	n.ServeHTTP(w, r.WithContext(ctx))
	return w.Code
}

// refusing lets the node answer all commands but the logins with a text.
func refusing(text string) func(*node, *visit) {
	return func(n *node, v *visit) {
		n.change(func() {
			n.reply = func(args []string) string {
				if args[0] == "AUTH" && strings.HasPrefix(text, "-ERR") {
					return "+OK\r\n"
				}
				return text
			}
		})
	}
}

var scenarios = map[string]func(*node, *visit){
	"all is well":     func(*node, *visit) {},
	"no login":        func(_ *node, v *visit) { v.cookie = "" },
	"a wrong cookie":  func(_ *node, v *visit) { v.cookie += "x" },
	"NOPERM":          refusing("-NOPERM no\r\n"),
	"CLUSTERDOWN":     refusing("-CLUSTERDOWN no leader\r\n"),
	"LOCKMODE":        refusingOnly("LOCK.FORCE", "-LOCKMODE no lock\r\n"),
	"unknown":         refusing("-ERR unknown command 'X', with args beginning with: \r\n"),
	"WRONGPASS":       refusingOnly("AUTH", "-WRONGPASS invalid\r\n"),
	"bad reply":       refusing(array(":1\r\n", ":2\r\n")),
	"no reply":        refusing(""),
	"no lock":         refusingOnly("LOCK.INFO", "$-1\r\n"),
	"a bad argument":  refusing("-ERR value is not an integer or out of range\r\n"),
	"a bad parameter": func(_ *node, v *visit) { v.target += "?count=x&db=x"; v.body = `{"key":1}` },
	"a large body":    func(_ *node, v *visit) { v.body = `{"user":"` + strings.Repeat("x", mostBody) + `"}` },
	"no JSON":         func(_ *node, v *visit) { v.header = http.Header{"Content-Type": {"text/plain"}} },
	"another origin":  func(_ *node, v *visit) { v.header = http.Header{"Origin": {"http://evil.example"}} },
	"no TLS":          func(n *node, _ *visit) { n.change(func() { n.near = false }) },
	"many logins": func(n *node, v *visit) {
		for range loginBurst {
			n.visit(visit{method: http.MethodPost, target: "/api/v1/login", body: `{"user":"op","password":"p"}`})
		}
	},
	"many streams": func(n *node, _ *visit) { n.streams.open = mostStreams },
}

func refusingOnly(command, text string) func(*node, *visit) {
	return func(n *node, _ *visit) {
		n.change(func() {
			n.reply = func(args []string) string {
				if args[0] == command {
					return text
				}
				return goodReply(args)
			}
		})
	}
}
