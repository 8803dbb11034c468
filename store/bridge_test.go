package store

import (
	"fmt"
	"strings"
	"testing"
)

// look runs BridgeLook.
func (d *testDB) look(txn *Txn, keys ...string) string {
	c := &Ctx{Txn: txn, Cmd: &Command{Name: "look"}, Args: [][]byte{[]byte("look")}, RESP: 2}
	for _, k := range keys {
		c.Args = append(c.Args, []byte(k))
	}
	var b strings.Builder
	for _, row := range BridgeLook(c).Elems {
		var content []string
		for _, e := range row.Elems[3].Elems {
			content = append(content, fmt.Sprintf("%.10s", e.Str))
		}
		fmt.Fprintf(&b, "%s ttl %d %q lock %d\n", row.Elems[0].Str, row.Elems[2].Int, content, row.Elems[4].Int)
	}
	return b.String()
}

// adopt runs BridgeAdopt.
func (d *testDB) adopt(txn *Txn, args ...string) Reply {
	c := &Ctx{Txn: txn, Cmd: &Command{Name: "adopt", Flags: Write}, Args: [][]byte{[]byte("adopt")}, RESP: 2}
	for _, a := range args {
		c.Args = append(c.Args, []byte(a))
	}
	return BridgeAdopt(c)
}

// TestBridgeLook: strings and small hashes are told whole, and of all else only whether it has changed.
func TestBridgeLook(t *testing.T) {
	d := newTokenDB(t)
	txn := d.begin()
	for _, line := range []string{"SET lock owner NX PX 5000", "SET data value", "HSET hash f v", "HSET rlock " + redissonA + " 1", "RPUSH list a b",
		"SET long " + strings.Repeat("x", bridgeString+1), "HSET wide f " + strings.Repeat("x", bridgeBytes)} {
		d.run(txn, words(line)...)
	}
	got := d.look(txn, "lock", "data", "hash", "rlock", "none")
	want := "string ttl 5000 [\"owner\"] lock 1\nstring ttl -1 [\"value\"] lock 0\nhash ttl -1 [\"f\" \"v\"] lock 0\nhash ttl -1 [\"" + redissonA[:10] + "\" \"1\"] lock 1\nnone ttl -1 [] lock 0\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	d.apply(txn)
	for _, key := range []string{"list", "long", "wide"} {
		txn = d.begin()
		before := d.look(txn, key)
		if !strings.HasPrefix(before, "large ttl -1 [") {
			t.Errorf("%s: %s", key, before)
		}
		if key == "list" {
			d.run(txn, words("RPUSH list c")...)
			if after := d.look(txn, key); after == before {
				t.Errorf("a change of %s is not seen: %s", key, after)
			}
		}
	}
}

// TestBridgeAdopt: a key takes over another state, but a lock never does.
func TestBridgeAdopt(t *testing.T) {
	d := newTokenDB(t)
	txn := d.begin()
	d.run(txn, words("SET held owner NX PX 5000")...)
	d.run(txn, words("SET old value")...)
	for _, c := range []struct {
		args []string
		want Reply
		look string
	}{
		{[]string{"held", "none", "-1", "0"}, Zero, "string ttl 5000 [\"owner\"] lock 1\n"},
		{[]string{"old", "string", "700", "1", "me"}, One, "string ttl 700 [\"me\"] lock 1\n"},
		{[]string{"new", "string", "-1", "0", "v"}, One, "string ttl -1 [\"v\"] lock 0\n"},
		{[]string{"new", "hash", "900", "0", "f", "v"}, One, "hash ttl 900 [\"f\" \"v\"] lock 0\n"},
		{[]string{"new", "hash", "900", "0", "odd"}, syntaxError, "hash ttl 900 [\"f\" \"v\"] lock 0\n"},
		{[]string{"new", "none", "-1", "0"}, One, "none ttl -1 [] lock 0\n"},
		{[]string{"new", "hash", "900", "0", "odd"}, syntaxError, "none ttl -1 [] lock 0\n"},
		{[]string{"new", "list", "-1", "0", "x"}, syntaxError, "none ttl -1 [] lock 0\n"},
		{[]string{"new", "string"}, syntaxError, "none ttl -1 [] lock 0\n"},
		{[]string{"new", "string", "x", "0", "v"}, notInteger, "none ttl -1 [] lock 0\n"},
	} {
		if got := d.adopt(txn, c.args...); got.Str != c.want.Str || got.Int != c.want.Int {
			t.Errorf("%q: %+v", c.args, got)
		}
		if got := d.look(txn, c.args[0]); got != c.look {
			t.Errorf("%q: %s, want %s", c.args, got, c.look)
		}
	}
}
