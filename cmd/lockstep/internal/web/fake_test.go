package web

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// node is a server whose replies a test chooses. reply gets a command, and returns bytes; "" means that it does not answer.
type node struct {
	*Handler
	mu       sync.Mutex
	reply    func(args []string) string
	ran      [][]string
	conns    []net.Conn // the connections that have authenticated: of each session one for commands, and one for messages
	may      func(user string, command ...string) bool
	right    bool // passwords are as they were at the logins
	secret   bool // users need passwords
	near     bool
	foreign  bool // requests name another host
	shielded bool // protected mode is on
	now      time.Duration
}

func newNode(t *testing.T) *node {
	n := &node{right: true, near: true, shielded: true, may: func(string, ...string) bool { return true }, reply: func([]string) string { return "+OK\r\n" }}
	n.Handler = New(Config{
		Serve: func(c net.Conn) { go n.serve(c) },
		May: func(user string, command ...string) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.may(user, command...)
		},
		StillRight:  func(string, string) bool { return n.is(&n.right) },
		HasPassword: func(string) bool { return n.is(&n.secret) },
		Protected:   func() bool { return n.is(&n.shielded) },
		Near:        func(*http.Request) bool { return n.is(&n.near) },
		Named:       func(*http.Request) bool { return !n.is(&n.foreign) },
		Now: func() time.Duration {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.now
		},
		Wall: func() time.Time { return time.Unix(0, 0) },
		Log:  slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	t.Cleanup(n.end)
	return n
}

// end ends all sessions.
func (n *node) end() {
	for _, s := range n.logins() {
		n.drop(s)
	}
}

func (n *node) logins() (list []*session) {
	n.sessions.mu.Lock()
	defer n.sessions.mu.Unlock()
	for _, s := range n.sessions.byKey {
		list = append(list, s)
	}
	return list
}

func (n *node) is(flag *bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return *flag
}

// change changes what the node says, or its clock.
func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		v, err := readReply(r, func() int { return 1 << 20 })
		if err != nil {
			return
		}
		var args []string
		for _, a := range v.([]any) {
			args = append(args, a.(string))
		}
		n.mu.Lock()
		n.ran = append(n.ran, args)
		reply := n.reply(args)
		if args[0] == "AUTH" {
			n.conns = append(n.conns, c)
		}
		n.mu.Unlock()
		if reply == "" {
			_, _ = io.Copy(io.Discard, r) // until the client leaves
			return
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

// commands returns what has been run, without the logins, and forgets it.
func (n *node) commands() (list []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, args := range n.ran {
		if args[0] != "AUTH" {
			list = append(list, strings.Join(args, " "))
		}
	}
	n.ran = nil
	return list
}

// visit is a request to the node.
type visit struct {
	method, target, body, cookie string
	header                       http.Header
	remote                       string
}

func (v visit) request() *http.Request {
	if v.method == "" {
		v.method = http.MethodGet
	}
	r := httptest.NewRequest(v.method, "http://localhost:8379/", strings.NewReader(v.body))
	u, err := r.URL.Parse(v.target)
	if err != nil {
		panic(err)
	}
	r.URL = u
	r.Host, r.RemoteAddr = "localhost:8379", "127.0.0.1:5000"
	if v.remote != "" {
		r.RemoteAddr = v.remote
	}
	for name, values := range v.header {
		r.Header[name] = values
	}
	if v.method == http.MethodPost && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if v.cookie != "" {
		r.Header.Set("Cookie", v.cookie)
	}
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8379})))
}

func (n *node) visit(v visit) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	n.ServeHTTP(w, v.request())
	return w
}

// logIn logs in through the API, and returns the cookie.
func (n *node) logIn(t *testing.T, user string) (cookie string) {
	t.Helper()
	w := n.visit(visit{method: http.MethodPost, target: "/api/v1/login", body: `{"user":"` + user + `","password":"p"}`})
	if w.Code != http.StatusOK {
		t.Fatalf("login: %d %s", w.Code, w.Body)
	}
	c := w.Result().Cookies()[0]
	return c.Name + "=" + c.Value
}

// bulk and array encode replies.
func bulk(text string) string { return string(encode([]string{text})[len("*1\r\n"):]) }

func array(elems ...string) string {
	head := encode(make([]string, len(elems)))
	return string(head[:strings.Index(string(head), "\n")+1]) + strings.Join(elems, "")
}
