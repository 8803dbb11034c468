package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// evasions are commands that a user tries without rights to the command, the key or the channel. $ stands for a key outside app:*.
var evasions = []string{
	"GET $", "SET $ x", "SET $ x GET", "DEL $", "UNLINK $", "APPEND $ x", "GETRANGE $ 0 -1", "STRLEN $", "GETDEL $", "SET $ x IFEQ x", "DELEX $", "DELEX $ IFNE x", "DELIFEQ $ x", "GETEX $", "EXPIRE $ 0", "PEXPIRE $ 1 NX", "PERSIST $", "TTL $", "TYPE $",
	"EXISTS $", "EXISTS app:a $", "TOUCH $", "DUMP $", "OBJECT ENCODING $", "MEMORY USAGE $", "MGET app:a $", "MSET app:a 1 $ x", "MSETNX $ x app:n 1", "DEL app:a $", "RENAME $ app:a", "RENAME app:a $", "RENAMENX app:a $",
	"COPY $ app:b", "COPY app:a $ REPLACE", "COPY $ app:b DB 1", "MOVE $ 1", "SINTERSTORE app:s $", "SUNIONSTORE $ app:s", "SDIFF app:s $", "SINTERCARD 2 app:s $", "SMOVE app:s $ m", "LMOVE $ app:l LEFT LEFT",
	"RPOPLPUSH app:l $", "LMPOP 2 app:l $ LEFT", "ZUNIONSTORE app:z 2 app:z $", "ZINTERSTORE $ 1 app:z", "ZRANGESTORE app:z $ 0 -1", "ZDIFF 2 app:z $", "ZMPOP 2 app:z $ MIN", "BITOP OR app:b $ app:a", "BITOP NOT $ app:a",
	"SORT $", "SORT app:l BY $*", "SORT app:l GET $", "SORT app:l STORE $", "SORT_RO app:l GET $", "LCS app:a $", "SETRANGE $ 0 x", "INCR $", "BITFIELD $ SET u8 0 1", "BITFIELD_RO $ GET u8 0", "RESTORE $ 0 x",
	"BLPOP $ 1", "BLPOP app:none $ 1", "BRPOPLPUSH app:l $ 1", "BLMOVE $ app:l LEFT LEFT 1", "BZPOPMIN app:none $ 1", "BLMPOP 1 2 app:none $ LEFT", "WATCH $",
	"KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "CONFIG GET *", "CONFIG SET notify-keyspace-events KEA", "CONFIG SET requirepass mine", "ACL SETUSER app +@all", "ACL SETUSER default on nopass",
	"ACL DELUSER other", "ACL LIST", "ACL GETUSER default", "ACL LOAD", "ACL LOAD version", "ACL DRYRUN default GET x", "ACL WHOAMI x", "DEBUG OBJECT $", "DEBUG POPULATE 5 $", "DEBUG populate 0 5 $ -1", "MONITOR", "CLIENT LIST", "CLIENT KILL ID 1", "CLIENT PAUSE 1", "SLOWLOG GET",
	"CLUSTER GETKEYSINSLOT 0 10", "CLUSTER COUNTKEYSINSLOT 0", "LOCKSTEP BACKUP BEGIN", "LOCKSTEP REMOVE n1", "LOCKSTEP ADD n9 127.0.0.1:1", "LOCKSTEP TRANSFER", "SHUTDOWN", "FAILOVER", "REPLICAOF NO ONE", "SAVE", "SCRIPT FLUSH", "FUNCTION FLUSH", "FUNCTION DUMP",
	"PUBLISH other m", "SPUBLISH other m", "SUBSCRIBE other", "PSUBSCRIBE *", "SSUBSCRIBE other", "PUBSUB CHANNELS",
}

// throughScripts returns the evasions that a script can try, too.
func throughScripts() (list []string) {
	for _, words := range evasions {
		name, _, _ := strings.Cut(words, " ")
		if !slices.Contains([]string{"WATCH", "MONITOR", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "SHUTDOWN", "CLIENT", "DEBUG", "LOCKSTEP", "FAILOVER"}, name) {
			list = append(list, words)
		}
	}
	return list
}

// Followers refuse the same commands to a user as the leader does, with the same errors.
func TestRightsThroughFollowers(t *testing.T) {
	list := nodes.Start(t, 3, "--enable-debug-command", "yes")
	admin := list[0].Dial()
	const private = "private-value"
	must := func(c *respclient.Conn, words ...string) {
		t.Helper()
		if got, err := c.Do(words...); err != nil {
			t.Fatalf("%q: %v, %v", words, got, err)
		}
	}
	for _, words := range []string{"SET private " + private, "SET app:a 1", "RPUSH app:l 1 2", "SADD app:s m", "ZADD app:z 1 m", "ACL SETUSER other on nopass ~* +@all", "SCRIPT LOAD return(redis.call('GET',KEYS[1]))",
		"ACL SETUSER app on nopass resetkeys resetchannels ~app:* &app:* -@all +@read +@write +@transaction +@scripting +@pubsub +eval +acl|whoami -keys -scan -randomkey -dbsize -flushall -flushdb -swapdb -script|flush -function|flush -function|dump -pubsub"} {
		must(admin, strings.Fields(words)...)
	}
	before, err := admin.Do("LOCKSTEP", "STATUS")
	if err != nil {
		t.Fatal(err)
	}
	state, err := respclient.Pairs(before)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		until(t, n.ID+" knows the user", func() bool { got, err := n.Do("AUTH", "app", "x"); return got == "OK" && err == nil })
	}
	tried := 0
	for _, form := range []struct {
		name  string
		words []string
		ask   func(c *respclient.Conn, args []string) (any, error)
	}{
		{"alone", evasions, func(c *respclient.Conn, args []string) (any, error) { return c.Do(args...) }},
		{"in MULTI", evasions, func(c *respclient.Conn, args []string) (any, error) {
			must(c, "MULTI")
			got, err := c.Do(args...)
			if err == nil && got == "QUEUED" {
				return c.Do("EXEC")
			}
			_, _ = c.Do("DISCARD") // end the transaction if it is still open
			return got, err
		}},
		{"in EVAL", throughScripts(), func(c *respclient.Conn, args []string) (any, error) {
			return c.Do(append([]string{"EVAL", "return redis.call(unpack(ARGV))", "0"}, args...)...)
		}},
		{"in EVAL, with a key", throughScripts(), func(c *respclient.Conn, args []string) (any, error) {
			return c.Do(append([]string{"EVAL", "return redis.pcall(unpack(ARGV))", "1", "app:a"}, args...)...)
		}},
	} {
		for _, words := range form.words {
			args := strings.Fields(strings.ReplaceAll(words, "$", "private"))
			var first string
			for i, n := range list {
				c := n.Dial()
				must(c, "AUTH", "app", "x")
				got, err := form.ask(c, args)
				c.Close()
				said := fmt.Sprint(got, " ", err)
				switch {
				case err == nil && !strings.Contains(said, "NOPERM") && !strings.Contains(said, "denied due to insufficient ACL permissions"), strings.Contains(said, private):
					t.Errorf("%s, by %s: %s is answered %v", form.name, n.ID, words, got)
				case i == 0:
					first = said
				case said != first:
					t.Errorf("%s: %s is answered %q by %s and %q by %s", form.name, words, first, list[0].ID, said, n.ID)
				}
				tried++
			}
		}
	}
	t.Logf("%d tries", tried)
	if after, err := admin.Pairs("LOCKSTEP", "STATUS"); err != nil || after["keys"] != state["keys"] || after["role"] != state["role"] {
		t.Errorf("before: %v, after: %v, %v", state, after, err)
	}
	if got, err := admin.Do("GET", "private"); got != private {
		t.Errorf("the key holds %v, %v", got, err)
	}
	if got, err := admin.Do("ACL", "USERS"); fmt.Sprint(got) != "[app default other]" {
		t.Errorf("the users are %v, %v", got, err)
	}
}
