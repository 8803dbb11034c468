package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// board is a client of a node's /api/v1/ with a cookie jar, as a browser has.
type board struct {
	t      *testing.T
	client *http.Client
	url    string
}

func newBoard(t *testing.T, n *nodes.Node, scheme string) *board {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(client.CloseIdleConnections)
	return &board{t, client, scheme + "://" + n.HTTPAddr + "/api/v1/"}
}

// ask makes a request, a POST if body is not empty, and returns the status and the answer.
func (b *board) ask(path, body string) (status int, answer map[string]any) {
	b.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &answer); err != nil && resp.Header.Get("Content-Type") == "application/json" {
		b.t.Fatalf("%s: %s: %v", path, text, err)
	}
	return resp.StatusCode, answer
}

func (b *board) want(path, body string, status int) map[string]any {
	b.t.Helper()
	got, answer := b.ask(path, body)
	if got != status {
		b.t.Fatalf("%s %s: %d %v, want %d", path, body, got, answer, status)
	}
	return answer
}

// large posts a body of 70 KB and returns the status of the answer. The node answers before it has read the whole body, so the request may
// not be written to its end, which http.Client takes for an error.
func (b *board) large(path string) (status int) {
	b.t.Helper()
	body := `{"key":"a","reason":"` + strings.Repeat("x", 70<<10) + `"}`
	r, err := http.NewRequest(http.MethodPost, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, cookie := range b.client.Jar.Cookies(r.URL) {
		r.AddCookie(cookie)
	}
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = r.Write(conn) // fails if the node has answered and closed
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	<-written
	return resp.StatusCode
}

// until repeats a request until it has a status.
func (b *board) until(path string, status int) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		got, answer := b.ask(path, "")
		if got == status {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: %d %v, want %d", path, got, answer, status)
		}
	}
}

// TestDashboardActsAsItsUser: what the dashboard does has the user's rights, is in the ACL log and in the statistics, and is the
// browser's in CLIENT LIST.
func TestDashboardActsAsItsUser(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	c := n.Dial()
	for _, command := range [][]string{{"ACL", "SETUSER", "op", "on", ">p", "~*", "&*", "+@all"}, {"ACL", "SETUSER", "viewer", "on", ">p", "%R~seen*", "+lock.list", "+lock.info"}} {
		if got := ask(t, c, command...); got != "OK" {
			t.Fatal(command, got)
		}
	}
	ask(t, c, "LOCK.ACQUIRE", "seen", "me", "PX", "60000")
	ask(t, c, "LOCK.ACQUIRE", "hidden", "me", "PX", "60000")

	viewer := newBoard(t, n, "http")
	viewer.want("login", `{"user":"viewer","password":"wrong"}`, 401)
	viewer.want("me", "", 401)
	may := viewer.want("login", `{"user":"viewer","password":"p"}`, 200)["may"].(map[string]any)
	if may["list"] != true || may["force"] != false || may["events"] != false {
		t.Errorf("%v", may)
	}
	if locks := viewer.want("locks", "", 200)["locks"].([]any); len(locks) != 1 {
		t.Errorf("%v", locks)
	}
	viewer.want("lock?key=seen", "", 200)
	viewer.want("lock?key=hidden", "", 403)
	viewer.want("lock/force", `{"key":"seen","reason":"I may not"}`, 403)
	viewer.want("cluster/remove", `{"member":"n1"}`, 403)
	viewer.want("clients", "", 403)
	viewer.want("overview", "", 403)
	log := ask(t, c, "ACL", "LOG")
	for _, want := range []string{"lock.force", "lockstep|remove", "viewer", "127.0.0.1:"} {
		if !strings.Contains(log, want) {
			t.Errorf("the ACL log has no %s: %s", want, log)
		}
	}

	op := newBoard(t, n, "http")
	op.want("login", `{"user":"op","password":"p"}`, 200)
	if got := op.want("lock/force", `{"key":"hidden","reason":"its owner is gone"}`, 200)["ended"]; got != 1.0 {
		t.Errorf("ended %v", got)
	}
	op.want("lock?key=hidden", "", 404)
	op.want("lock?key=nothing&db=99", "", 400)
	op.want("lock?key=seen&db=5", "", 404)
	op.want("lock?key=seen", "", 200) // the database is that of the request, not of the one before
	if text := ask(t, c, "INFO", "commandstats"); !strings.Contains(text, "cmdstat_lock.force:calls=1,") || !strings.Contains(text, "rejected_calls=1") {
		t.Error(text)
	}
	if list := op.want("clients", "", 200)["clients"].([]any); len(list) != 4 { // three connections of the dashboard: the viewer may not listen
		t.Errorf("%v", list)
	}
}

// TestDashboardLoginsEnd: a login ends when its user is deleted, is switched off or gets another password, also on another node.
func TestDashboardLoginsEnd(t *testing.T) {
	list := nodes.Start(t, 3)
	c := list[0].Dial()
	for i, change := range [][]string{{"ACL", "DELUSER", "u"}, {"ACL", "SETUSER", "u", "off"}, {"ACL", "SETUSER", "u", "resetpass", ">other"}} {
		if got := ask(t, c, "ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "+@all"); got != "OK" {
			t.Fatal(got)
		}
		b := newBoard(t, list[i], "http")
		b.want("login", `{"user":"u","password":"p"}`, 200)
		b.want("me", "", 200)
		ask(t, c, change...)
		b.until("me", 401)
		if change[1] == "DELUSER" { // and stays ended when there is such a user again
			ask(t, c, "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all")
			b.want("me", "", 401)
		}
	}
	b := newBoard(t, list[0], "http")
	ask(t, c, "ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "+@all")
	b.want("login", `{"user":"u","password":"p"}`, 200)
	if got := ask(t, c, "CLIENT", "KILL", "USER", "u"); got == "0" {
		t.Error(got)
	}
	b.until("me", 401)
}

// TestDashboardOfACluster: every node shows the members, and a follower's dashboard goes on after the death of the leader.
func TestDashboardOfACluster(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	var follower *nodes.Node
	for _, n := range list {
		if n != leader {
			follower = n
		}
	}
	b := newBoard(t, follower, "http")
	b.want("login", `{"user":"default","password":""}`, 200)
	members := b.want("overview", "", 200)["members"].([]any)
	if len(members) != 3 {
		t.Errorf("%v", members)
	}
	leader.Kill()
	begun := time.Now()
	b.want("lock?key=nothing", "", 404)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the dashboard was back after %v", took)
	}
	b.want("cluster/remove", fmt.Sprintf(`{"member":%q}`, leader.ID), 200)
	if members := b.want("cluster", "", 200)["members"].([]any); len(members) != 2 {
		t.Errorf("%v", members)
	}
}

// TestDashboardBehindLimits: the pages of the dashboard take a small body, and no other page takes one.
func TestDashboardBehindLimits(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	b := newBoard(t, n, "http")
	b.want("login", `{"user":"default","password":""}`, 200)
	if got := b.large("lock/force"); got != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d", got)
	}
	for path, want := range map[string]int{"../../metrics": 413, "../../ui2": 413, "nothing": 404, "me": 405} {
		if got, _ := b.ask(path, "{}"); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if got, _ := page(t, http.DefaultClient, "http://"+n.HTTPAddr+"/api/v1/openapi.json", "", "", "evil.example"); got != http.StatusForbidden {
		t.Errorf("under a foreign name: %d", got)
	}
}

// TestDashboardUnderAForeignName: a web page elsewhere may give its own name the address of the node. Without protected mode, it must not
// log in as the user who needs no password.
func TestDashboardUnderAForeignName(t *testing.T) {
	n := nodes.Start(t, 1, "--protected-mode=no")[0]
	_, port, err := net.SplitHostPort(n.HTTPAddr)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"evil.example": http.StatusForbidden, "localhost": http.StatusOK, "192.0.2.1": http.StatusOK} {
		host = net.JoinHostPort(host, port)
		r, err := http.NewRequest(http.MethodPost, "http://"+n.HTTPAddr+"/api/v1/login", strings.NewReader(`{"user":"default","password":""}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "http://"+host)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, resp.StatusCode, want)
		}
	}
}
