package server

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/store"
)

// show prints an argument tree in one line.
func show(args []argument) string {
	var words []string
	for _, a := range args {
		w := a.name + ":" + a.kind
		if a.token != "" {
			w = a.token + "=" + w
		}
		if len(a.args) > 0 {
			w += "(" + show(a.args) + ")"
		}
		if a.optional {
			w += "?"
		}
		if a.multiple {
			w += "+"
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

func TestParseUsage(t *testing.T) {
	for _, c := range []struct{ usage, want string }{
		{"", ""},
		{"key value", "key:key value:string"},
		{"key [key ...]", "key:key+"},
		{"[channel [channel ...]]", "channel:string?+"},
		{"key field value [field value ...]", "key:key field_value:block(field:string value:string)+"},
		{"numkeys [key [key ...]] [arg [arg ...]]", "numkeys:integer key:key?+ arg:string?+"},
		{"[NX | XX] [GET]", "nx_xx:oneof(NX=nx:pure-token XX=xx:pure-token)? GET=get:pure-token?"},
		{"[EX seconds | KEEPTTL]", "seconds_keepttl:oneof(EX=seconds:integer KEEPTTL=keepttl:pure-token)?"},
		{"<ON | OFF>", "on_off:oneof(ON=on:pure-token OFF=off:pure-token)"},
		{"[TYPE <A | B>] [ID client-id [client-id ...]]",
			"TYPE=a_b:oneof(A=a:pure-token B=b:pure-token)? ID=client-id:integer?+"},
		{"key [count [WITHVALUES]]", "key:key count_withvalues:block(count:integer WITHVALUES=withvalues:pure-token?)?"},
		{"[LIMIT limit [PERMITS permits]] [WAITERS minimum]", "limit_permits:block(LIMIT=limit:integer PERMITS=permits:integer?)? WAITERS=minimum:integer?"},
		{"<a | [B b]> ...", "a_b:oneof(a:string B=b:string?)+"},
	} {
		args, err := parseUsage(c.usage)
		if got := show(args); err != nil || got != c.want {
			t.Errorf("%q: %s, %v; want %s", c.usage, got, err, c.want)
		}
	}
	for _, usage := range []string{"[a", "a]", "<a | b", "...", "a > b"} {
		if args, err := parseUsage(usage); err == nil {
			t.Errorf("%q was taken for %s", usage, show(args))
		}
	}
}

// TestRows: the description of every command is complete, its usage can be parsed, and somebody answers the command.
func TestRows(t *testing.T) {
	ts := newTestServer(t, nil)
	check := func(c *store.Command) {
		if _, err := parseUsage(c.Usage); err != nil {
			t.Errorf("%s: %v", c.FullName(), err)
		}
		if c.Arity == 0 || c.Group == "" || c.Since == "" || c.Summary == "" {
			t.Errorf("%s: its row is incomplete", c.FullName())
		}
		container := len(c.Sub) > 0 && c.Arity < -1
		if ts.handlers[c] == nil && c.Run == nil && !container {
			t.Errorf("%s: nobody answers it", c.FullName())
		}
	}
	for _, cmd := range ts.table.All() {
		check(cmd)
		for i := range cmd.Sub {
			check(&cmd.Sub[i])
		}
	}
}

// ask sends a command and returns the reply.
func (c *client) ask(args ...string) transcript.Value {
	c.t.Helper()
	c.send(array(args...))
	v, err := transcript.ReadValue(bufio.NewReader(c.conn))
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func TestInfo(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.Port = 6379 })
	c := ts.dial(t)
	c.ask("SET", "k", "v", "EX", "100")
	c.ask("GET")
	c.ask("HGET", "k", "f")
	c.ask("NOSUCH")
	text := c.ask("INFO", "everything").Text
	for _, line := range []string{
		"redis_version:" + store.RedisVersion, "redis_mode:standalone", "run_id:" + ts.cfg.RunID, "tcp_port:6379",
		"connected_clients:1", "blocked_clients:0", "maxclients:10000", "loading:0", "aof_enabled:0",
		"total_connections_received:1", "total_commands_processed:2", "total_error_replies:3",
		"role:master", "connected_slaves:1", "cluster_enabled:0", "db0:keys=1,expires=1,avg_ttl=0",
		"cmdstat_get:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0",
		"cmdstat_hget:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1",
		"errorstat_ERR:count=2", "errorstat_WRONGTYPE:count=1", "# Modules",
	} {
		if !strings.Contains(text, line+"\r\n") {
			t.Errorf("INFO has no line %q", line)
		}
	}
	c.ask("CONFIG", "RESETSTAT")
	if text := c.ask("INFO", "stats", "errorstats").Text; !strings.Contains(text, "total_error_replies:0\r\n") || strings.Contains(text, "errorstat_") {
		t.Errorf("after RESETSTAT: %s", text)
	}
}

// TestFollower: a node that is not the leader says where the leader is.
func TestFollower(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	ts.fake.elect("n2", "192.0.2.7:6380")
	text := c.ask("INFO", "replication").Text
	want := "role:slave\r\nmaster_host:192.0.2.7\r\nmaster_port:6380\r\nmaster_link_status:up\r\n"
	if !strings.Contains(text, want) || !strings.Contains(text, "connected_slaves:1\r\n") {
		t.Errorf("INFO replication: %q", text)
	}
	c.do("ROLE", "*5\r\n$5\r\nslave\r\n$9\r\n192.0.2.7\r\n:6380\r\n$9\r\nconnected\r\n:0\r\n")
	if hello := strings.Join(c.ask("HELLO").Lines(), " "); !strings.Contains(hello, `$"role"   $"replica"`) {
		t.Errorf("HELLO: %s", hello)
	}
	ts.fake.elect("", "")
	c.do("ROLE", "*5\r\n$5\r\nslave\r\n$9\r\n192.0.2.7\r\n:6380\r\n$7\r\nconnect\r\n:0\r\n")
	ts.fake.elect("n1", "127.0.0.1:6379")
	c.do("ROLE", "*3\r\n$6\r\nmaster\r\n:0\r\n*2\r\n"+
		"*3\r\n$9\r\n192.0.2.7\r\n$4\r\n6380\r\n$1\r\n7\r\n"+
		"*3\r\n$9\r\n127.0.0.1\r\n$4\r\n6381\r\n$1\r\n7\r\n")
}

func (f *fakeBackend) elect(id, addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leader, f.addr = id, addr
	t := *f.topology.Load()
	t.Leader = id
	if id != "" {
		t.Last = id
	}
	t.Nodes = slices.Clone(t.Nodes)
	if n := t.Node(id); n != nil {
		n.Plain = addr
	}
	f.topology.Store(&t)
}

func TestLockstepCommands(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.ask("HELLO", "3")
	status := c.ask("LOCKSTEP", "STATUS")
	got := map[string]string{}
	for i := 0; i+1 < len(status.Elems); i += 2 {
		got[status.Elems[i].Text] = status.Elems[i+1].Text
	}
	for k, want := range map[string]string{"id": "n1", "role": "leader", "leader": "n1", "term": "3", "state-hash": "0123456789abcdef", "clients": "1"} {
		if status.Type != '%' || got[k] != want {
			t.Errorf("status: %s is %q, want %q", k, got[k], want)
		}
	}
	members := c.ask("LOCKSTEP", "MEMBERS")
	if len(members.Elems) != 2 || members.Elems[1].Elems[1].Text != "n2" {
		t.Errorf("members: %q", members.Lines())
	}
	c.do("LOCKSTEP TRANSFER n2", "+OK\r\n")
	c.do("LOCKSTEP TRANSFER", "+OK\r\n")
	c.do(`LOCKSTEP TRANSFER ""`, "-"+string(errNoMember)+"\r\n")
	c.do("LOCKSTEP TRANSFER n9", fmt.Sprintf("-ERR %v\r\n", cluster.ErrNoSuchMember))
	c.do("LOCKSTEP SNAPSHOT", "+OK\r\n")
	begun := c.ask("LOCKSTEP", "BACKUP", "BEGIN")
	name := begun.Elems[0].Text
	for i, size := range []int{BackupPiece, 5, 0} {
		if piece := c.ask("LOCKSTEP", "BACKUP", "READ", name); len(piece.Text) != size {
			t.Errorf("piece %d of the backup has %d bytes, want %d", i, len(piece.Text), size)
		}
	}
	c.do("LOCKSTEP BACKUP READ "+name, fmt.Sprintf("-%v\r\n", errNoBackup))
	c.do("LOCKSTEP BACKUP BEGIN x", "-ERR syntax error\r\n")
	c.ask("LOCKSTEP", "BACKUP", "BEGIN")
	c.do("LOCKSTEP BACKUP BEGIN", fmt.Sprintf("-%v\r\n", errBackups))
	c.do("SAVE", "+OK\r\n")
	if n := ts.fake.snapshots.Load(); n != 2 {
		t.Errorf("%d snapshots", n)
	}
	c.do("LOCKSTEP NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try LOCKSTEP HELP.\r\n")
}

// TestBackupEndsWithItsClient: a client begins a backup and leaves before it has read all. The next client need not wait a minute.
func TestBackupEndsWithItsClient(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		leaves, other, next := ts.dial(t), ts.dial(t), ts.dial(t)
		name := leaves.ask("LOCKSTEP", "BACKUP", "BEGIN").Elems[0].Text
		_ = other.conn.Close()
		until(t, "the server to notice that another client has left", func() bool { return ts.clients() == 2 })
		next.do("LOCKSTEP BACKUP BEGIN", fmt.Sprintf("-%v\r\n", errBackups))
		_ = leaves.conn.Close()
		until(t, "the server to notice that the client has left", func() bool { return ts.clients() == 1 })
		next.do("LOCKSTEP BACKUP READ "+name, fmt.Sprintf("-%v\r\n", errNoBackup))
		if got := next.ask("LOCKSTEP", "BACKUP", "BEGIN"); len(got.Elems) != 2 {
			t.Errorf("the next backup: %v", got.Lines())
		}
	})
}

// TestScriptsCallLocalCommands checks which of the commands that a node answers itself may be called by scripts.
func TestScriptsCallLocalCommands(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.ask("SET", "k", "v")
	if v := c.ask("EVAL", "return redis.call('info', 'keyspace', 'replication')", "0"); !strings.Contains(v.Text, "db0:keys=1,") || !strings.Contains(v.Text, "role:master") {
		t.Errorf("INFO in a script: %q", v.Text)
	}
	c.do(`EVAL "return redis.call('command', 'getkeys', 'get', 'a')" 0`, "*1\r\n$1\r\na\r\n")
	c.do(`EVAL "return #redis.call('time')" 0`, ":2\r\n")
	c.do(`EVAL "return redis.call('ping', 'x')" 0`, "$1\r\nx\r\n")
	if v := c.ask("EVAL", "return redis.call('client', 'id')", "0"); v.Type != '-' {
		t.Errorf("CLIENT ID in a script: %q", v.Lines())
	}
}

func TestConfigValidate(t *testing.T) {
	good := Default()
	good.Clock = newFake(good.Hub).clock
	if err := good.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	bad := Config{RunID: "x", MaxClients: 0, Timeout: -1, TCPKeepAlive: -1, BusyReplyThreshold: -1, EnableDebugCommand: "maybe"}
	err := bad.Validate()
	for _, word := range []string{"node id", "clock", "logger", "hub", "run id", "maxclients", "timeout", "tcp-keepalive", "proto-max-bulk-len",
		"client-query-buffer-limit", "busy-reply-threshold", "enable-debug-command"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("nothing about %s in: %v", word, err)
		}
	}
}

// TestHelloLogsInFewTimes: the number of logins in one HELLO is bounded, because each login goes through all passwords of its user.
func TestHelloLogsInFewTimes(t *testing.T) {
	c := newTestServer(t, nil).dial(t)
	c.do("ACL SETUSER u on >p +@all", "+OK\r\n")
	hello := []string{"HELLO", "2"}
	for range maxHelloLogins {
		hello = append(hello, "AUTH", "u", "p")
	}
	if got := c.ask(hello...); got.Type == '-' {
		t.Errorf("%d logins: %v", maxHelloLogins, got.Lines())
	}
	if got := c.ask(append(hello, "AUTH", "u", "p")...); got.Type != '-' || !strings.Contains(got.Text, "Syntax error in HELLO option 'AUTH'") {
		t.Errorf("one more: %v", got.Lines())
	}
}

// TestStatusOfTheLastSave: INFO reports that a snapshot could not be written, until a later one has been written.
func TestStatusOfTheLastSave(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	status := func(want string) {
		t.Helper()
		if got := strings.Join(c.ask("INFO", "persistence").Lines(), "\n"); !strings.Contains(got, "rdb_last_bgsave_status:"+want) {
			t.Errorf("want %s: %s", want, got)
		}
	}
	status("ok")
	ts.fake.noDisk.Store(true)
	if got := c.ask("SAVE"); got.Type != '-' {
		t.Errorf("SAVE: %v", got)
	}
	status("err")
	ts.fake.noDisk.Store(false)
	c.do("SAVE", "+OK\r\n")
	status("ok")
}

// TestUnwatchInAnExecution: the commands that EXEC runs stay charged to the client when one of them is UNWATCH.
func TestUnwatchInAnExecution(t *testing.T) {
	s := &session{}
	s.executing = &transaction{size: 1000}
	s.unwatch()
	if s.kept != 1000 {
		t.Errorf("%d bytes are charged", s.kept)
	}
	s.executing = nil
	if s.unwatch(); s.kept != 0 {
		t.Errorf("%d bytes are charged to a client without a transaction", s.kept)
	}
}

// TestMaxClientsWithinFiles: CONFIG SET refuses a maxclients for which the process may not open enough files. The error has
// Redis's words.
func TestMaxClientsWithinFiles(t *testing.T) {
	c := newTestServer(t, func(c *Config) { c.ClientCeiling = 500 }).dial(t)
	c.do("CONFIG SET maxclients 501", "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - "+faultFiles(500)+"\r\n")
	c.do("CONFIG SET maxclients 500", "+OK\r\n")
}
