// Package discovery holds the answers of a real redis-sentinel and a real Redis Cluster, version 7.0.15, to clients that look for
// nodes. It holds only the shapes of the answers, because names, addresses and times always differ. The program in record/ takes
// the answers from real servers; nobody types them. The server's tests ask the same questions and must get answers of the same
// shape.
package discovery

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// Sentinel are questions to a Sentinel of the master mymaster, which has two replicas and two other Sentinels.
var Sentinel = []string{
	"HELLO", "SENTINEL MASTERS", "SENTINEL MASTER mymaster", "SENTINEL MASTER x", "SENTINEL MASTER",
	"SENTINEL REPLICAS mymaster", "SENTINEL SLAVES mymaster", "SENTINEL REPLICAS x", "SENTINEL SENTINELS mymaster", "SENTINEL SENTINELS x",
	"SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "SENTINEL get-master-addr-by-name x", "SENTINEL CKQUORUM mymaster", "SENTINEL CKQUORUM x",
	"SENTINEL MYID", "SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 1 0 *", "SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 x 0 *",
	"SENTINEL IS-MASTER-DOWN-BY-ADDR x", "SENTINEL RESET x", "SENTINEL FAILOVER x", "SENTINEL PENDING-SCRIPTS", "SENTINEL FLUSHCONFIG",
	"SENTINEL CONFIG GET *", "SENTINEL CONFIG GET resolve-hostnames", "SENTINEL CONFIG GET nosuch", "SENTINEL CONFIG GET", "SENTINEL CONFIG",
	"SENTINEL CONFIG FOO x", "SENTINEL CONFIG SET x", "SENTINEL CONFIG SET x y", "SENTINEL DEBUG", "SENTINEL DEBUG x", "SENTINEL DEBUG FOO 1",
	"SENTINEL DEBUG INFO-PERIOD x", "SENTINEL MONITOR mymaster 127.0.0.1 1 1", "SENTINEL MONITOR a b", "SENTINEL MONITOR a 127.0.0.1 x 1",
	"SENTINEL MONITOR a 127.0.0.1 1 x", "SENTINEL MONITOR a 127.0.0.1 1 0", "SENTINEL REMOVE x", "SENTINEL SET mymaster", "SENTINEL SET mymaster foo bar",
	"SENTINEL SET mymaster quorum", "SENTINEL SET x quorum 1", "SENTINEL SIMULATE-FAILURE x", "SENTINEL SIMULATE-FAILURE help",
	"SENTINEL INFO-CACHE x", "SENTINEL INFO-CACHE", "SENTINEL FOO", "SENTINEL", "ROLE", "PING", "PUBLISH a b", "PUBLISH __sentinel__:hello x",
	"INFO sentinel", "INFO replication", "GET x", "SET a b", "SELECT 0", "CONFIG GET *", "MULTI", "ECHO x", "QUIT", "RESET", "PUBSUB CHANNELS",
	"TIME", "SSUBSCRIBE a", "CLUSTER SLOTS", "CLIENT SETNAME x", "CLIENT GETNAME", "COMMAND INFO get", "SUBSCRIBE +switch-master", "UNSUBSCRIBE +switch-master",
	"PSUBSCRIBE *", "PUNSUBSCRIBE *", "SENTINEL HELP",
}

// Cluster are questions to the node that has all slots; it has two replicas.
var Cluster = []string{
	"HELLO", "CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES", "CLUSTER INFO", "CLUSTER MYID", "CLUSTER LINKS", "CLUSTER KEYSLOT foo{bar}",
	"CLUSTER KEYSLOT", "CLUSTER COUNTKEYSINSLOT 0", "CLUSTER COUNTKEYSINSLOT 16384", "CLUSTER COUNTKEYSINSLOT x", "CLUSTER GETKEYSINSLOT 0 10",
	"CLUSTER GETKEYSINSLOT 99999 10", "CLUSTER GETKEYSINSLOT 0 -1", "CLUSTER REPLICAS x", "CLUSTER SLAVES x", "CLUSTER COUNT-FAILURE-REPORTS x",
	"CLUSTER REPLICAS <myid>", "CLUSTER SLAVES <myid>", "CLUSTER COUNT-FAILURE-REPORTS <myid>",
	"CLUSTER FORGET x", "CLUSTER REPLICATE x", "CLUSTER RESET foo", "CLUSTER RESET x y", "CLUSTER FAILOVER", "CLUSTER FAILOVER foo", "CLUSTER FOO", "CLUSTER",
	"CLUSTER SLOTS x", "CLUSTER SAVECONFIG", "ASKING", "READONLY", "READWRITE", "READONLY x", "GET foo", "SET foo 1", "GET foo", "CLUSTER COUNTKEYSINSLOT 12182",
	"CLUSTER GETKEYSINSLOT 12182 10", "MGET a b", "MSET a 1 b 2", "MGET {a}1 {a}2", "EVAL return 2 a b", "EVAL return 1 a", "SELECT 1", "SELECT 0", "SELECT x",
	"DEL a b", "EXISTS a b", "RENAME a b", "MOVE a 1", "SWAPDB 0 1", "COPY a b", "COPY {a}1 {a}2 DB 1", "COPY {a}1 {a}2 DB 0", "OBJECT ENCODING a",
	"SORT a BY x*", "SORT a BY nosort", "SORT a GET #", "SPUBLISH a b", "SSUBSCRIBE a b", "PUBLISH a b", "INFO cluster", "PUBSUB NUMPAT",
	"PUBSUB SHARDNUMSUB 0", "SCAN 0 MATCH nosuch", "FLUSHALL",
	"MULTI", "SET {a}1 x", "GET {a}2", "EXEC", "MULTI", "SET a 1", "SET b 2", "EXEC", "EXEC", "MULTI", "MGET a b", "EXEC", "MULTI", "PING", "EXEC", "MULTI", "nosuch",
	"SET a 1", "SET b 2", "EXEC", "EXEC", "WATCH a b", "WATCH {a}1 {a}2", "UNWATCH", "CONFIG GET cluster-enabled", "CLUSTER HELP", "FLUSHALL",
}

// Replica are questions to a replica of the node that has all slots.
var Replica = []string{
	"HELLO", "CLUSTER SLOTS", "CLUSTER NODES", "GET foo", "SET foo 1", "MGET a b", "MGET {a}1 {a}2", "EVAL return 2 a b", "EVAL return 1 a", "SELECT 1",
	"MOVE a 1", "COPY {a}1 {a}2 DB 1", "SORT a BY x*", "SPUBLISH a b", "READONLY", "GET foo", "EXISTS foo", "SET foo 1", "READWRITE", "GET foo", "ROLE",
	"MULTI", "GET foo", "SET foo 1", "EXEC", "EXEC", "READONLY", "MULTI", "GET foo", "EXEC", "MULTI", "GET foo", "READWRITE", "EXEC", "GET foo",
}

// Ask sends questions over one connection and returns them with the shapes of the answers. In a question, <myid> stands for the
// answer to CLUSTER MYID.
func Ask(conn net.Conn, resp string, questions []string) ([]string, error) {
	r := bufio.NewReader(conn)
	var lines []string
	id := ""
	for _, q := range questions {
		words := strings.Fields(q)
		if q == "HELLO" {
			words = append(words, resp)
		}
		sent := strings.Fields(strings.ReplaceAll(strings.Join(words, " "), "<myid>", id))
		if _, err := conn.Write(transcript.AppendCommand(nil, sent...)); err != nil {
			return nil, err
		}
		v, err := transcript.ReadValue(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q, err)
		}
		if q == "CLUSTER MYID" {
			id = v.Text
		}
		lines = append(lines, "> "+strings.Join(words, " "))
		lines = append(lines, Shape(v, "")...)
	}
	return lines, nil
}

// Shape renders a reply without what differs between clusters. It keeps names of fields, words and errors.
func Shape(v transcript.Value, indent string) []string {
	lines := []string{indent + head(v)}
	for i, e := range v.Elems {
		if named(v) && i%2 == 0 {
			lines = append(lines, indent+"  "+e.Text)
			continue
		}
		lines = append(lines, Shape(e, indent+"  ")...)
	}
	return lines
}

// named reports whether an aggregate is a map, or is an array that stands for a map in RESP2.
func named(v transcript.Value) bool {
	switch {
	case v.Type == '%':
		return true
	case v.Type != '*' || len(v.Elems) == 0 || len(v.Elems)%2 != 0:
		return false
	}
	for i := 0; i < len(v.Elems); i += 2 {
		if e := v.Elems[i]; e.Type != '$' || !fieldName.MatchString(e.Text) {
			return false
		}
	}
	return true
}

func head(v transcript.Value) string {
	switch v.Type {
	case ':', ',', '_':
		return string(v.Type)
	case '*', '~', '>', '%':
		if v.Null {
			return string(v.Type) + "-1"
		}
		return fmt.Sprintf("%c%d", v.Type, len(v.Elems))
	case '$', '=':
		if v.Null {
			return "$-1"
		}
	}
	return string(v.Type) + Plain(v.Text)
}

var (
	fieldName  = regexp.MustCompile(`^[A-Za-z][A-Za-z-]+$`)
	messages   = regexp.MustCompile(`cluster_stats_messages_[a-z-]+_(sent|received):\d+\r\n`)
	substitute = []struct {
		from *regexp.Regexp
		to   string
	}{
		{regexp.MustCompile(`[0-9a-f]{40}`), "<id>"},
		{regexp.MustCompile(`127\.0\.0\.1[: ]\d+(@\d+)?`), "<address>"},
		{regexp.MustCompile(`127\.0\.0\.1`), "<host>"},
		{regexp.MustCompile(`7\.\d\.\d+`), "<version>"},
		{regexp.MustCompile(`\b\d{1,5}-\d+\b`), "<slots>"},
		{regexp.MustCompile(`(^|[ :/=])-?\d+`), "$1<n>"},
		{regexp.MustCompile(`\r?\n`), `\n`},
	}
)

// Plain replaces names, addresses and numbers in a text.
func Plain(text string) string {
	if strings.HasPrefix(text, "MOVED ") {
		// A redirection is compared by its slot, not by the address.
		return text[:strings.LastIndexByte(text, ' ')] + " <address>"
	}
	if strings.HasSuffix(text, "\n") && strings.Contains(text, "connected") {
		// The order of lines in CLUSTER NODES is undefined.
		form, list := "", text
		if strings.HasPrefix(text, "txt:") {
			form, list = text[:4], text[4:]
		}
		nodes := strings.Split(strings.TrimSuffix(list, "\n"), "\n")
		for i := range nodes {
			nodes[i] = Plain(nodes[i])
		}
		slices.Sort(nodes)
		return form + strings.Join(nodes, `\n`) + `\n`
	}
	text = messages.ReplaceAllString(text, "")
	for _, s := range substitute {
		text = s.from.ReplaceAllString(text, s.to)
	}
	return text
}
