package server

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// target plays transcripts against a server over the fake backend.
type target struct {
	t     *testing.T
	ts    *testServer
	loops int
}

func (g target) Dial() (net.Conn, error) { return g.ts.connect() }
func (g target) Advance(d time.Duration) { g.ts.fake.advance(d) }

// With starts a server with parameters of its own.
func (g target) With(settings [][2]string) (transcript.Target, func(), error) {
	ts := newTestServer(g.t, func(c *Config) {
		c.Loops = g.loops
		for _, kv := range settings {
			switch kv[0] {
			case "enable-debug-command":
				c.EnableDebugCommand = kv[1]
			default:
				g.t.Errorf("no test knows the setting %s", kv[0])
			}
		}
	})
	return target{g.t, ts, g.loops}, func() {}, nil
}

// notHere are the transcripts that need what the fake backend does not have, with the reason for each.
var notHere = map[string]string{
	"server/failover-alone.txt":    "the fake backend has two members",
	"server/info.txt":              "the fake backend knows of three members",
	"pubsub/keyspace-events.txt":   "the fake backend has no keyspace events",
	"list/waiting.txt":             "the queues of the leader are not here",
	"list/waiting-multi.txt":       "the queues of the leader are not here",
	"list/waiting-order.txt":       "the queues of the leader are not here",
	"list/waiting-move.txt":        "the queues of the leader are not here",
	"list/blmove.txt":              "the queues of the leader are not here",
	"list/brpoplpush.txt":          "the queues of the leader are not here",
	"list/waiting-overwritten.txt": "the queues of the leader are not here",
	"zset/waiting.txt":             "the queues of the leader are not here",
	"zset/waiting-overwritten.txt": "the queues of the leader are not here",
	"multi/waiting.txt":            "the queues of the leader are not here",
}

// otherRows are steps that show commands of other packages. The replies contain texts of these packages (notes and tips), which
// their own tests check.
var otherRows = map[string]bool{
	"> COMMAND INFO eval":                 true,
	"> COMMAND INFO eval evalsha eval_ro": true,
	"> COMMAND INFO script|load":          true,
}

// TestTranscripts plays the recorded conversations about connections and about
// collections.
func TestTranscripts(t *testing.T) { playTranscripts(t, 0) }

// TestTranscriptsWithoutLoops plays the same conversations without event loops, as on a system that has none.
func TestTranscriptsWithoutLoops(t *testing.T) { playTranscripts(t, -1) }

func playTranscripts(t *testing.T, loops int) {
	root := filepath.Join("..", "conformance", "transcript", "testdata")
	groups := []string{"server", "protocol", "pubsub", "multi"}
	if !overTLS { // what the data commands answer does not depend on the socket
		groups = append(groups, "list", "set", "zset", "sort", "dump", "bitmap")
	}
	for _, group := range groups {
		files, err := filepath.Glob(filepath.Join(root, group, "*.txt"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no transcripts in %s (%v)", group, err)
		}
		for _, path := range files {
			name := group + "/" + filepath.Base(path)
			t.Run(name, func(t *testing.T) {
				if why := notHere[name]; why != "" {
					t.Skip(why)
				}
				t.Parallel()
				src, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				f, err := transcript.Parse(name, src)
				if err != nil {
					t.Fatal(err)
				}
				diffs, err := transcript.Check(f, target{t, newTestServer(t, func(c *Config) { c.Loops = loops }), loops})
				if err != nil {
					t.Error(err)
				}
				for _, d := range diffs {
					if !otherRows[d.Source] {
						t.Error(d)
					}
				}
			})
		}
	}
}
