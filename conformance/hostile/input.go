package hostile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// door is a listener of a node.
type door int

const (
	clientDoor door = iota
	sentinelDoor
	clusterDoor
	webDoor
	peerDoor
	tlsDoor
	tlsSentinelDoor
	tlsClusterDoor
)

var doors = []string{"client", "sentinel", "cluster", "http", "peer", "client TLS", "sentinel TLS", "cluster TLS"}

func (d door) String() string { return doors[d] }

// These are the users that send an input.
const (
	nobody = ""       // a client without a password
	wide   = "wide"   // may run what is not dangerous, on the keys evil:*
	narrow = "narrow" // may read and write the keys app:*, and run scripts
)

// reading says how a client reads the answers.
type reading int

const (
	readAll  reading = iota // as they come
	readSlow                // a few bytes now and then
	readNone                // not at all
	readEach                // the answer to each piece before the next piece is sent
)

var readings = []string{"all read", "read slowly", "not read", "read one by one"}

// input is what an attacker sends to a node.
type input struct {
	attack string
	door   door
	node   int
	user   string
	pieces [][]byte
	read   reading
	times  int           // number of connections that send the input at once; 0 means 1
	hold   time.Duration // how long the connections stay open after all is sent
	script bool          // counts as a script
	beside bool          // redis-server must give the same replies
	alone  bool          // its script was stopped while other inputs were played, so now it is played alone
	shown  string        // which certificate the client shows in a TLS handshake before the pieces; "": no TLS
}

// maxShown is how many bytes of a piece are printed.
const maxShown = 2000

// String renders the input in enough detail that somebody can make a test of it.
func (in input) String() string {
	var b strings.Builder
	who := in.user
	if who == nobody {
		who = "nobody"
	}
	fmt.Fprintf(&b, "%s: to the %s port of n%d as %s, %d at once, %s, held for %v:", in.attack, in.door, in.node+1, who, max(in.times, 1), readings[in.read], in.hold)
	if in.shown != "" {
		b.WriteString(" over TLS with a certificate: " + in.shown + ":")
	}
	for i, p := range in.pieces {
		if i == 50 {
			fmt.Fprintf(&b, "\n  and %d pieces more", len(in.pieces)-i)
			break
		}
		b.WriteString("\n  " + shown(p))
	}
	return b.String()
}

// shown quotes a piece. It writes a run of one byte as a repetition.
func shown(p []byte) string {
	const run = 64
	var b strings.Builder
	plain := 0
	flush := func(to int) {
		if to > plain {
			if b.Len() > 0 {
				b.WriteString(" + ")
			}
			b.WriteString(strconv.Quote(string(p[plain:to])))
		}
	}
	for i := 0; i < len(p) && b.Len() < maxShown; {
		j := i
		for j < len(p) && p[j] == p[i] {
			j++
		}
		if j-i >= run {
			flush(i)
			fmt.Fprintf(&b, " + %q x %d", p[i:i+1], j-i)
			plain = j
		}
		i = j
	}
	flush(min(len(p), plain+maxShown))
	if rest := len(p) - plain; rest > maxShown {
		fmt.Fprintf(&b, " and %d bytes more", rest-maxShown)
	}
	return strings.TrimPrefix(b.String(), " + ")
}

// command returns a piece that is one command.
func command(args ...string) []byte { return transcript.AppendCommand(nil, args...) }

// commands returns pieces of one command each. In a line, blanks separate the words of a command.
func commands(lines ...string) [][]byte {
	var list [][]byte
	for _, l := range lines {
		list = append(list, command(strings.Fields(l)...))
	}
	return list
}

// script returns a piece that runs a script without keys.
func script(text string, args ...string) []byte {
	return command(append([]string{"EVAL", text, "0"}, args...)...)
}
