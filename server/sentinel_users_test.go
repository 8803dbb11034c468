package server

import (
	"net"
	"strings"
	"testing"
)

// TestSentinelObeysTheClusterPassword: a Sentinel asks for the password of the cluster, not for the one that the node was started with.
func TestSentinelObeysTheClusterPassword(t *testing.T) {
	ts := newTestServer(t, func(cfg *Config) { cfg.RequirePass = "old" })
	addr := ts.sentinel(t)
	admin := ts.dial(t)
	admin.do("AUTH old", "+OK\r\n")
	before := dialTo(t, addr)
	before.do("AUTH old", "+OK\r\n")
	before.do("CLIENT KILL ID 9999", ":0\r\n")

	admin.do("CONFIG SET requirepass new", "+OK\r\n")
	late := dialTo(t, addr)
	late.do("AUTH old", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	late.do("SENTINEL MYID", "-NOAUTH Authentication required.\r\n")
	late.do("SHUTDOWN", "-NOAUTH Authentication required.\r\n")
	late.do("AUTH new", "+OK\r\n")
	late.do("CLIENT KILL ID 9999", ":0\r\n")
	// A session that logged in before the change stays, as at other ports. But its commands for operators need the present password.
	before.do("PING", "+PONG\r\n")
	before.do("SHUTDOWN", "-NOAUTH Authentication required.\r\n")
	before.do("AUTH new", "+OK\r\n")

	admin.do("ACL SETUSER default -failover -shutdown", "+OK\r\n")
	for _, command := range []string{"SENTINEL FAILOVER mymaster", "SHUTDOWN"} {
		words := strings.Fields(strings.ToLower(command))
		if words[0] == "sentinel" {
			words[0] = "sentinel|" + words[1]
		}
		before.do(command, "-NOPERM this user has no permissions to run the '"+words[0]+"' command\r\n")
	}
	admin.do("ACL SETUSER default off", "+OK\r\n")
	before.do("CLIENT KILL ID 9999", "-NOAUTH Authentication required.\r\n")
	before.do("AUTH new", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
}

// TestSentinelOfAClusterWithAPassword: the Sentinel asks for the cluster's password, although the node was started without a
// password.
func TestSentinelOfAClusterWithAPassword(t *testing.T) {
	ts := newTestServer(t, nil)
	admin := ts.dial(t)
	admin.do("CONFIG SET requirepass secret", "+OK\r\n")
	addr := ts.sentinel(t)
	c := dialTo(t, addr)
	for _, command := range []string{"CLIENT LIST", "SHUTDOWN", "SENTINEL MASTERS", "SUBSCRIBE x"} {
		c.do(command, "-NOAUTH Authentication required.\r\n")
	}
	c.do("AUTH secret", "+OK\r\n")
	c.do("PING", "+PONG\r\n")
}

// TestProtectedModeOfASentinel: protected mode refuses a client on another machine at the Sentinel port exactly when it does so at the
// other ports.
func TestProtectedModeOfASentinel(t *testing.T) {
	far := func(c net.Conn) net.Conn { return farConn{c} }
	ts := newTestServer(t, func(cfg *Config) { cfg.RequirePass = "secret" })
	start := ts.cfg
	start.RequirePass = "" // as with an ACL file, whose users the Sentinel does not get
	var faces []*testServer
	for _, cfg := range []Config{ts.cfg, start} {
		sentinel := NewSentinel(cfg, ts.fake, "mymaster", false)
		t.Cleanup(func() {
			if err := sentinel.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		})
		faces = append(faces, &testServer{Server: sentinel, t: t})
	}
	faces = append(faces, ts)
	admin, denied := ts.dial(t), "-"+string(errDenied)+"\r\n"
	for _, step := range []struct{ command, want string }{
		{"AUTH secret", "-NOAUTH Authentication required.\r\n"},
		{"CONFIG SET requirepass \"\"", denied},
		{"CONFIG SET protected-mode no", "+PONG\r\n"},
		{"CONFIG SET protected-mode yes", denied},
		{"ACL SETUSER default >new", "-NOAUTH Authentication required.\r\n"},
		{"ACL SETUSER default nopass", denied},
	} {
		admin.do(step.command, "+OK\r\n")
		for _, face := range faces {
			c := face.pipe(t, far)
			go func() { _, _ = c.conn.Write([]byte("PING\r\n")) }() // fails if the server ends the connection first
			c.expect(step.want)
		}
	}
}

// TestStrangersDoNotPause: a stranger must not pause a Sentinel's clients, because even CLIENT UNPAUSE would wait for the end of the
// pause.
func TestStrangersDoNotPause(t *testing.T) {
	ts := newTestServer(t, nil)
	known := dialTo(t, ts.sentinel(t))
	ts.cfg.AnyClient = true
	stranger := dialTo(t, ts.sentinel(t))
	stranger.do("CLIENT PAUSE 4000000000000 ALL", "-ERR This Sentinel asks for no password, so none of its clients may pause the others. Start the node with --sentinel-auth yes\r\n")
	stranger.do("PING", "+PONG\r\n")
	known.do("CLIENT PAUSE 0", "+OK\r\n")
}
