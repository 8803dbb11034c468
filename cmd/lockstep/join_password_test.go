package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// A node that is started without the cluster's password never serves a client that does not know this password.
func TestJoinWithoutThePassword(t *testing.T) {
	list := nodes.Start(t, 3, "--requirepass", "sesame")
	leader := list[0].Dial()
	if got, err := leader.Do("AUTH", "sesame"); got != "OK" {
		t.Fatal(got, err)
	}
	if got, err := leader.Do("SET", "lock", "me"); got != "OK" {
		t.Fatal(got, err)
	}
	// The commands in led need the leader, those in local only a node that knows something of the cluster, those in early nothing.
	led := []string{"GET lock", "DEL lock", "AUTH wrong", "AUTH default wrong", "AUTH another", "HELLO 2 AUTH default another", "CONFIG GET requirepass", "ACL LIST", "MONITOR", "EVAL return 0",
		"KEYS *", "ACL SETUSER eve on nopass ~* +@all", "CONFIG SET requirepass mine", "CLIENT LIST", "LOCKSTEP REMOVE n1", "LOCKSTEP TRANSFER n2", "LOCKSTEP ADD n9 127.0.0.1:1", "BLPOP list 1", "PUBLISH ch m"}
	early := []string{"GET lock", "AUTH default wrong", "AUTH another", "CONFIG SET requirepass mine", "LOCKSTEP REMOVE n1"}
	local := []string{"HELLO 2", "SUBSCRIBE ch", "INFO server", "LOCKSTEP STATUS", "LOCKSTEP BACKUP BEGIN", "PING"}
	for i, flags := range [][]string{nil, {"--requirepass", "another"}} {
		n := nodes.Newcomer(t, fmt.Sprint("n", 4+i), list, flags...)
		n.Run()
		refuses := func(when string, commands ...string) {
			t.Helper()
			if commands == nil {
				commands = led
			}
			for _, words := range commands {
				c, err := respclient.Dial(n.Addr, 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.Do(strings.Fields(words)...)
				c.Close()
				code, _, _ := strings.Cut(fmt.Sprint(err), " ")
				switch {
				case err == nil:
					t.Errorf("%s, %v: %s is answered %v", when, flags, words, got)
				case code != "NOAUTH" && code != "WRONGPASS" && code != "CLUSTERDOWN" && !strings.Contains(err.Error(), "HELLO must be called"):
					t.Errorf("%s, %v: %s is answered %v", when, flags, words, err)
				}
			}
		}
		until(t, "its port", func() bool { _, err := n.Do("PING"); return err == nil || strings.Contains(err.Error(), "NOAUTH") })
		refuses("as it joins", early...)
		n.WaitReady()
		refuses("as a member")
		refuses("as a member", local...)
		if code, out := list[0].Admin("transfer", "--requirepass", "sesame", n.ID); code != exitOK {
			t.Fatal(out)
		}
		until(t, "it leads", func() bool {
			_, out := n.Admin("status", "--requirepass", "sesame")
			return strings.Contains(out, "leader")
		})
		refuses("as the leader", early...)
		n.Kill()
		n.Run()
		until(t, "its port", func() bool { _, err := n.Do("PING"); return err == nil || strings.Contains(err.Error(), "NOAUTH") })
		refuses("started again", early...)
		n.WaitReady()
		refuses("started again, and ready", local...)
		c := n.Dial()
		for _, words := range []string{"AUTH sesame", "SET lock me"} {
			if got, err := c.Do(strings.Fields(words)...); got != "OK" {
				t.Errorf("who knows the password is answered %v, %v", got, err)
			}
		}
		if !strings.Contains(n.Log(), "--requirepass") && flags != nil {
			t.Errorf("it does not say that its password does not count: %s", n.Log())
		}
	}
}

// The first node's password becomes the cluster's. A restart of a single node may change it, but not remove it, and not after CONFIG
// SET.
func TestPasswordOfTheFirstStart(t *testing.T) {
	n := nodes.Start(t, 1, "--requirepass", "first")[0]
	knows := func(when, password string, wrong ...string) {
		t.Helper()
		until(t, "the leader's knowing "+password, func() bool { got, err := n.Do("AUTH", password); return got == "OK" && err == nil })
		c := n.Dial()
		if got, err := c.Do("GET", "lock"); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
			t.Errorf("%s: without a password: %v, %v", when, got, err)
		}
		for _, w := range wrong {
			if got, err := c.Do("AUTH", w); err == nil {
				t.Errorf("%s: %s: %v", when, w, got)
			}
		}
		if got, err := c.Do("AUTH", password); got != "OK" {
			t.Errorf("%s: %s: %v, %v", when, password, got, err)
		}
	}
	restart := func(flags ...string) {
		t.Helper()
		n.Kill()
		n = n.Restarted(flags...)
		n.Run()
		n.WaitReady()
	}
	knows("at the first start", "first")
	restart()
	knows("without the flag", "first")
	restart("--requirepass", "second")
	knows("with another", "second", "first")
	restart()
	knows("without it again", "second", "first")
	if strings.Contains(n.Log(), "is not the password") {
		t.Errorf("it says that its password does not count: %s", n.Log())
	}
	c := n.Dial()
	for _, words := range []string{"AUTH second", "CONFIG SET requirepass third"} {
		if got, err := c.Do(strings.Fields(words)...); got != "OK" {
			t.Fatal(got, err)
		}
	}
	restart("--requirepass", "fourth")
	knows("after CONFIG SET", "third", "second", "fourth")
	until(t, "a warning", func() bool { return strings.Count(n.Log(), "is not the password") == 1 })
}
