package hostile

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// memoryLimit is how many bytes of memory each node may use.
const memoryLimit = 256 << 20

// scriptLimit is the value of --script-time-limit. It is short, so that endless scripts take little of the time of a run.
const scriptLimit = 300 * time.Millisecond

// passwords has the passwords of the users. The judge and the innocents use the default user.
var passwords = map[string]string{"default": "the-owner", wide: "wide-open", narrow: "narrow-minded"}

// users has the commands that create the attackers' users.
var users = [][]string{
	{"ACL", "SETUSER", wide, "reset", "on", ">" + passwords[wide], "~evil:*", "&evil:*", "+@all", "-@admin", "-@dangerous", "+sort", "+sort_ro", "+keys", "+info", "+role"},
	{"ACL", "SETUSER", narrow, "reset", "on", ">" + passwords[narrow], "resetchannels", "~app:*", "-@all", "+eval", "+get", "+set"},
}

// fleet is the set of nodes that are attacked.
type fleet struct {
	nodes     []*nodes.Node
	fronts    []*front
	groups    []*group
	ungrouped error // why the nodes have no control groups

	muchWork  time.Duration // muchInRedis, or another value in the tests of the judge
	forbidden string
	papers    papers
	tally     *tally
	judge     *judge.Judge

	mu      sync.Mutex
	stopped []input // inputs whose scripts the node stopped although Redis ran them to their end
}

// start starts n nodes. They end with the test.
func start(t testing.TB, n int, seed uint64, count *tally) *fleet {
	t.Helper()
	f := &fleet{tally: count, muchWork: muchInRedis, judge: judge.New(t.Logf), forbidden: fmt.Sprintf("forbidden-%016x", seed^0x5eed)}
	t.Cleanup(func() {
		for _, g := range f.groups {
			if err := g.remove(); err != nil {
				t.Error(err)
			}
		}
	})
	setup := nodes.Setup{Flags: []string{"--requirepass", passwords["default"], "--script-time-limit", scriptLimit.String()}}
	var err error
	if f.papers, err = makePapers(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	setup.Flags = append(setup.Flags, f.papers.flags...)
	if seed%2 == 1 { // in every other fleet, the nodes prove to each other that they know a secret
		setup.Flags = append(setup.Flags, "--peer-secret-file", f.papers.secret)
	}
	if f.ungrouped = f.group(n); f.ungrouped == nil {
		setup.Within = func(id string) []string { return f.groups[id[1]-'1'].within() }
	}
	if n > 1 {
		for range n { // before the nodes get addresses, so that no address is taken twice
			f.fronts = append(f.fronts, newFront(t))
		}
		setup.Front = func(id, peerAddr string) string { return f.fronts[id[1]-'1'].before(peerAddr) }
	}
	f.nodes = nodes.StartSetupSecret(t, n, setup)
	for _, args := range append(users, f.treasure()...) {
		if _, err := f.ask(0, args...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	return f
}

// group makes a control group for each of n nodes.
func (f *fleet) group(n int) error {
	for i := range n {
		g, err := newGroup(fmt.Sprintf("n%d", i+1), memoryLimit)
		if err != nil {
			for _, g := range f.groups {
				err = errors.Join(err, g.remove())
			}
			f.groups = nil
			return err
		}
		f.groups = append(f.groups, g)
	}
	return nil
}

// treasure returns commands that write the forbidden word, in a key of each type. Only the default user may read these keys.
func (f *fleet) treasure() [][]string {
	return [][]string{
		{"SET", "secret:string", f.forbidden},
		{"SET", "secret:app:1", f.forbidden},
		{"HSET", "secret:hash", "field", f.forbidden},
		{"RPUSH", "secret:list", f.forbidden},
		{"SADD", "secret:set", f.forbidden},
		{"ZADD", "secret:zset", "1", f.forbidden},
	}
}

func (f *fleet) addr(node int, d door) string {
	n := f.nodes[node%len(f.nodes)]
	switch d {
	case sentinelDoor:
		return n.SentinelAddr
	case clusterDoor:
		return n.ClusterAddr
	case webDoor:
		return n.HTTPAddr
	case peerDoor:
		return n.PeerAddr
	case tlsDoor:
		return n.TLSAddr
	case tlsSentinelDoor:
		return n.TLSSentinelAddr
	case tlsClusterDoor:
		return n.TLSClusterAddr
	}
	return n.Addr
}

// line is a connection of the default user. It is closed if a command gets no answer in time.
type line struct {
	*respclient.Conn
	conn net.Conn
}

func (f *fleet) dial(node int) (*line, error) {
	conn, err := net.DialTimeout("tcp", f.addr(node, clientDoor), patience)
	if err != nil {
		return nil, err
	}
	l := &line{respclient.NewConn(conn), conn}
	if _, err := l.insist("AUTH", passwords["default"]); err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

func (l *line) do(args ...string) (any, error) {
	if err := l.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return l.Do(args...)
}

// insist repeats a command that was refused or has an unknown outcome. The judge's commands may be executed twice.
func (l *line) insist(args ...string) (reply any, err error) {
	for began := time.Now(); time.Since(began) < patience; time.Sleep(50 * time.Millisecond) {
		var refused respclient.ServerError
		if reply, err = l.do(args...); !errors.As(err, &refused) || !isRefusal(string(refused)) && !isUnknown(string(refused)) {
			break
		}
	}
	return reply, err
}

// ask sends one command of the default user over a new connection.
func (f *fleet) ask(node int, args ...string) (any, error) {
	l, err := f.dial(node)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.insist(args...)
}

// told records a fault.
func (f *fleet) told(what judge.Fault, format string, args ...any) {
	f.judge.Fault(what, format, args...)
}

// ended reports whether the process of a node has ended. It records each such end as a fault.
func (f *fleet) ended() bool {
	ended := false
	for _, n := range f.nodes {
		if n.Ended() {
			f.told(processEnded, "%s: %s\n%s", n.ID, n.HowEnded(), gist(n.Log()))
			ended = true
		}
	}
	return ended
}

// gist returns a log's Go traceback or, without one, the log's end.
func gist(log string) string {
	const enough = 1500
	for _, mark := range []string{"fatal error: ", "panic: ", "runtime: "} {
		if i := strings.Index(log, mark); i >= 0 {
			return log[i:min(len(log), i+enough)]
		}
	}
	return log[max(0, len(log)-enough):]
}

// anyEnded reports whether the process of a node has ended. It records no fault.
func (f *fleet) anyEnded() bool {
	for _, n := range f.nodes {
		if n.Ended() {
			return true
		}
	}
	return false
}

// endedSoon is ended for a caller that has just lost a connection: it gives the process a second to end.
func (f *fleet) endedSoon() bool {
	for range 40 {
		if f.anyEnded() {
			return f.ended()
		}
		time.Sleep(25 * time.Millisecond)
	}
	return false
}

// endedSoonAt reports whether a node ends soon after a lost connection. It records no fault; check does.
func (f *fleet) endedSoonAt(node int, err error) bool {
	var refused respclient.ServerError
	for i := 0; !errors.As(err, &refused) && i < 20; i++ {
		if f.nodes[node].Ended() {
			return true
		}
		time.Sleep(25 * time.Millisecond)
	}
	return false
}
