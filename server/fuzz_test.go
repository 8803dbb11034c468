package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzStrangers: a stranger, or a user with few rights, never learns or changes what is the owner's. The server goes on serving the
// owner.
func FuzzStrangers(f *testing.F) {
	for _, in := range []string{
		"GET treasure\r\n", array("GET", "treasure") + array("SET", "treasure", "x"), array("MULTI") + array("GET", "treasure") + array("EXEC"), array("HELLO", "3", "AUTH", "default", "x"),
		array("EVAL", "return redis.call('get','treasure')", "0"), array("EVAL", "return redis.call('get',KEYS[1])", "1", "treasure"), array("SORT", "app:l", "BY", "treasure", "GET", "treasure"),
		array("ACL", "SETUSER", "few", "+@all"), array("CONFIG", "GET", "*"), array("CLIENT", "TRACKING", "ON", "BCAST") + array("WATCH", "treasure"), array("COPY", "treasure", "app:x") + array("GET", "app:x"),
		array("SENTINEL", "MASTERS"), array("CLUSTER", "SLOTS"), array("SUBSCRIBE", "app:c") + array("RESET") + array("PING"), array("OBJECT", "ENCODING", "treasure") + array("DUMP", "treasure"), "*1\r\n$-1\r\n", "*3\r\n$3\r\nSET\r\n$",
		array("MGET", "app:1", "treasure") + array("BITOP", "OR", "app:x", "treasure") + array("MONITOR"), array("FUNCTION", "LOAD", "#!lua name=x\nredis.register_function('x',function() return redis.call('get','treasure') end)") + array("FCALL", "x", "0"),
	} {
		for who := range uint8(6) {
			f.Add([]byte(in), who)
		}
	}
	const treasure = "only the owner reads this"
	ts := newTestServer(f, func(c *Config) { c.RequirePass = "of the owner" })
	addrs := []string{ts.addr, ts.sentinel(f), ts.face(f, ts.Server, FaceCluster)}
	owner := ts.dial(f)
	for _, args := range [][]string{{"AUTH", "of the owner"}, {"ACL", "SETUSER", "few", "on", ">rights", "resetchannels", "&app:*", "~app:*", "+@all", "-@admin", "-@dangerous"}, {"SET", "treasure", treasure}} {
		owner.send(array(args...))
		owner.expect("+OK\r\n")
	}
	f.Fuzz(func(t *testing.T, in []byte, who uint8) {
		got := strange(t, addrs[who>>1%3], who&1 != 0, in)
		if bytes.Contains(got, []byte(treasure)) {
			t.Errorf("%q was told %q", in, got)
		}
		owner := &client{t: t, conn: owner.conn}
		owner.send(array("GET", "treasure"))
		owner.expect(bulk(treasure))
	})
}

// strange sends bytes over a connection of its own and returns everything that comes until the
// server has closed it.
func strange(t *testing.T, addr string, known bool, in []byte) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if known {
		in = append([]byte(array("AUTH", "few", "rights")), in...)
	}
	if _, err := conn.Write(in); err == nil { // the server may close the connection before all bytes are sent
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	all, err := io.ReadAll(conn)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		t.Fatalf("%q: not closed after %d bytes: %.200q", in, len(all), all)
	}
	return all
}
