package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
	"github.com/lockstep-io/lockstep/server/respclient"
)

var recordACLFiles = flag.Bool("record-aclfiles", false, "record what redis-server says of ACL files")

// adminLine is the first line of each ACL file. The tests log in as the default user, so this line gives that user all rights.
const adminLine = "user default on >of-all ~* &* +@all\n"

// aclFiles are contents of ACL files. Each is written after adminLine.
var aclFiles = []string{
	"", "\n \t \r\n\n", "user a on >secret ~a* &c +@read -@all +get\n",
	"user a on #5e884898da28047151d0e56f8dc6292773603d0d6aabbd39d5e6ee1c43d0ee08 ~a (~b +set) (%R~c &d -@all +hget)\n",
	"user a off nopass resetchannels\n   user b   on \t\r\nuser c on ~x \t +get \r\n", "user a", "user a on skip-sanitize-payload allkeys allchannels allcommands -flushall +select|0",
	"# a comment\n", "user\n", "USER a on\n", "uzer a on\nuser b on\n", "user a b c\n", "user a on\nuser a off\n", "user a +foo -bar +@baz\nuser a on\n", "user a ~x ~* ~y bad +foo\n",
	"user a\tb on\nuser c on\n", "user \"a b\" on\n", "user 'a' on >p\n", "user a on\t+get\n", "user a on ~x\ty\n", "user a on ~\"x y\" +get\n", "user a on ~\"xy +get\n",
	"user a on ( +get)\n", "user a on )\n", "user a (~a (~b +get)\n", "user a (~a +get) x)\n", "user a (+foo)\n", "user a (bad)\n", "user a (\"~a +get)\n",
	"user a #zz\nuser b !zz\nuser c <gone\n", "user a >p <p nopass resetpass on\n", "user a reset ~a reset\nuser b +@all clearselectors\n", "user a +get|x +config|get|x\n", "user a +config|get +config|nothing\n",
	"user Default on\nuser ñandú on ~ü\n", "user a on %~x\n", "user a %RW~x %R~y %W~y %X~z\n", "user a &a &* &b\nuser b allchannels resetchannels &x\n",
}

// aclFileAnswers has a server read each of aclFiles, and returns the server's replies.
func aclFileAnswers(t *testing.T, c *respclient.Conn, file string) string {
	t.Helper()
	var b strings.Builder
	say := func(command ...string) {
		reply, err := c.Do(command...)
		if err != nil {
			reply = err
		}
		fmt.Fprintf(&b, "%q: %s\n", command, strings.ReplaceAll(fmt.Sprint(reply), file, "FILE"))
	}
	for _, text := range aclFiles {
		if err := os.WriteFile(file, []byte(adminLine+text), 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n%q\n", text)
		say("ACL", "LOAD")
		say("ACL", "LIST")
		say("ACL", "SAVE")
		saved, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s", saved)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	say("ACL", "LOAD")
	say("CONFIG", "SET", "aclfile", "x")
	return b.String()
}

const aclFileGolden = "testdata/aclfiles.txt"

// TestACLFilesAsRedis: lockstep reads and writes ACL files as redis-server 7.0.15 does, and names the same faults in them.
func TestACLFilesAsRedis(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte(adminLine), 0o600); err != nil {
		t.Fatal(err)
	}
	if *recordACLFiles {
		recordRedis(t, file)
	}
	golden, err := os.ReadFile(aclFileGolden)
	if err != nil {
		t.Fatal(err)
	}
	list := nodes.Start(t, 1, "--aclfile", file)
	c := list[0].Dial()
	if got := ask(t, c, "AUTH", "of-all"); got != "OK" {
		t.Fatal(got)
	}
	if got := aclFileAnswers(t, c, file); got != string(golden) {
		a, b := strings.Split(got, "\n"), strings.Split(string(golden), "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("line %d:\n%s\nRedis:\n%s", i+1, a[i], b[i])
			}
		}
		t.Fatalf("%d lines, Redis has %d", len(a), len(b))
	}
}

func recordRedis(t *testing.T, file string) {
	bin, version, err := redisd.Find()
	if err != nil || version != redisd.Version {
		t.Fatalf("needs redis-server %s: found %q, %v", redisd.Version, version, err)
	}
	s, err := redisd.Start(bin, [2]string{"aclfile", file})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, err := s.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c, err := respclient.Dial(raw.RemoteAddr().String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask(t, c, "AUTH", "of-all")
	if err := os.WriteFile(aclFileGolden, []byte(aclFileAnswers(t, c, file)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(adminLine), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestACLFileOfACluster: ACL LOAD at a follower replaces the users on every node. After a restart, the users of the cluster count, not
// the file.
func TestACLFileOfACluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const app = "user app on >of-app ~app:* +@all\n"
	write(adminLine + app + "user old on >of-old ~* +@all\n")
	list := nodes.Start(t, 3, "--aclfile", file)
	dial := func(n *nodes.Node, name string) *respclient.Conn {
		t.Helper()
		c := n.Dial()
		if got := ask(t, c, "AUTH", name, "of-"+strings.Replace(name, "default", "all", 1)); got != "OK" {
			t.Fatal(got)
		}
		return c
	}
	if got, err := list[0].Dial().Do("GET", "app:k"); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v, %v", got, err)
	}
	leader := nodes.Leader(list)
	var followers []*nodes.Node
	for _, n := range list {
		if n != leader {
			followers = append(followers, n)
		}
	}
	admin, old := dial(followers[0], "default"), dial(followers[1], "old")
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for _, n := range list {
		c := dial(n, "app")
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := c.Do("SET", "app:k", "v"); err != nil {
					t.Errorf("a user that stays: %v, %v", got, err)
					return
				}
				if got, err := c.Do("AUTH", "app", "of-app"); err != nil {
					t.Errorf("a user that stays comes in: %v, %v", got, err)
					return
				}
			}
		})
	}
	for i := range 20 {
		write(adminLine + app + fmt.Sprintf("user extra%d on\n", i))
		if got := ask(t, admin, "ACL", "LOAD"); got != "OK" {
			t.Fatal(got)
		}
	}
	if got, err := old.Do("PING"); err == nil || strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("a user that was taken out: %v, %v", got, err)
	}
	write(adminLine + app + "user broken +foo\n")
	if got, err := admin.Do("ACL", "LOAD"); err == nil || !strings.Contains(err.Error(), ":3: ") {
		t.Errorf("a broken file: %v, %v", got, err)
	}
	for _, n := range list {
		if got := ask(t, dial(n, "default"), "ACL", "USERS"); got != "[app default extra19]" {
			t.Errorf("the users are %s", got)
		}
	}
	// A user without the right to ACL LOAD cannot change the users by it.
	ask(t, admin, "ACL", "SETUSER", "app", "-@admin")
	if got, err := dial(followers[1], "app").Do("ACL", "LOAD"); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("without the right: %v, %v", got, err)
	}
	close(stop)
	busy.Wait()
	write(adminLine + "user other on\n")
	for _, n := range list {
		n.Kill()
	}
	for _, n := range list {
		n.Run()
	}
	for _, n := range list {
		n.WaitReady()
		c := dial(n, "default")
		if got := ask(t, c, "ACL", "USERS"); got != "[app default extra19]" {
			t.Errorf("after a restart the users are %s", got)
		}
		const told = "the users of the ACL file are not those of the cluster"
		for deadline := time.Now().Add(5 * time.Second); !strings.Contains(n.Log(), told); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the log does not say that the file differs:\n%s", n.Log())
			}
		}
	}
	if got := ask(t, dial(list[0], "default"), "ACL", "SAVE"); got != "OK" {
		t.Error(got)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 3 || !strings.Contains(string(text), "user extra19 on") {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// TestACLLoadWithoutTheDefaultUser: if the ACL file does not name the default user, ACL LOAD leaves that user as it is.
func TestACLLoadWithoutTheDefaultUser(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte("user app on >of-app ~* &* +@all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--requirepass", "of the flag"}} {
		n := nodes.Start(t, 1, append([]string{"--aclfile", file}, flags...)...)[0]
		app := n.Dial()
		ask(t, app, "AUTH", "app", "of-app")
		ask(t, app, "CONFIG", "SET", "requirepass", "new")
		def := func(password string) string {
			c := n.Dial()
			if got, err := c.Do("PING"); err == nil {
				t.Errorf("without a password: %v", got)
			}
			got, err := c.Do("AUTH", password)
			return fmt.Sprint(got, err)
		}
		if got := ask(t, app, "ACL", "LOAD"); got != "OK" {
			t.Fatal(got)
		}
		if got := def("new"); got != "OK<nil>" {
			t.Error(got)
		}
		if got := def("of the flag"); !strings.Contains(got, "WRONGPASS") {
			t.Error(got)
		}
		ask(t, app, "ACL", "SETUSER", "default", "off")
		ask(t, app, "ACL", "LOAD")
		if got := def("new"); !strings.Contains(got, "WRONGPASS") {
			t.Error(got)
		}
	}
}

// TestACLFileOfAnOldCluster: once the users of the cluster have been set, a node ignores the default user in its ACL file.
func TestACLFileOfAnOldCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const alice = "user alice on >p ~* &* +@all\n"
	write(alice)
	n := nodes.Start(t, 1, "--aclfile", file)[0]
	c := n.Dial()
	ask(t, c, "SET", "secret", "s")
	until(t, "the first users", func() bool { return strings.Contains(ask(t, c, "ACL", "USERS"), "alice") })
	n.Kill()
	write("user default on nopass ~app:* &* +@all\n" + alice)
	n.Run()
	n.WaitReady()
	c = n.Dial()
	until(t, "the node to know the users of the cluster", func() bool {
		return strings.Contains(ask(t, c, "ACL", "LIST"), "user default on nopass ~* &* +@all")
	})
	if got := ask(t, c, "GET", "secret"); got != "s" {
		t.Errorf("a command: %s", got)
	}
	if got := ask(t, c, "EVAL", "return redis.call('get', 'secret')", "0"); got != "s" {
		t.Errorf("a script: %s", got)
	}
	until(t, "the log to say that the file differs", func() bool {
		return strings.Contains(n.Log(), "the users of the ACL file are not those of the cluster")
	})
}

// TestACLFileAtTheStart: a node does not start with an unusable ACL file, nor with one that lets everybody in.
func TestACLFileAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	for _, c := range []struct {
		text, want string
		flags      []string
	}{
		{"user a +foo\n", ":1: Error in applying operation '+foo'", nil},
		{"", "the default user needs no password", []string{"--listen", "0.0.0.0:1"}},
		{"user default on nopass +@all\n", "the default user needs no password", []string{"--listen", "0.0.0.0:1"}},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, exitUsage, []string{c.want}, append([]string{"--ephemeral", "--http-listen", "", "--aclfile", file}, c.flags...)...)
	}
	refused(t, exitUsage, []string{"No such file or directory"}, "--ephemeral", "--http-listen", "", "--aclfile", file+".absent")
	if err := os.WriteFile(file, []byte("user a on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list := nodes.Start(t, 1, "--aclfile", file, "--requirepass", "of the flag")
	c := list[0].Dial()
	if got, err := c.Do("GET", "k"); err == nil {
		t.Errorf("without a password: %v", got)
	}
	for range 2 {
		if got := ask(t, c, "AUTH", "of the flag"); got != "OK" {
			t.Fatal(got)
		}
		if got := ask(t, c, "ACL", "USERS"); got != "[a default]" {
			t.Error(got)
		}
		// In Redis, this ACL LOAD would leave the default user without a password.
		ask(t, c, "ACL", "LOAD")
		c = list[0].Dial()
	}
}
