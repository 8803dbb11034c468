package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// slowFollower plays transcripts against a node that does not lead, and whose clock cannot be moved.
type slowFollower struct{ addr string }

func (f slowFollower) Dial() (net.Conn, error) { return net.Dial("tcp", f.addr) }
func (f slowFollower) Advance(d time.Duration) { time.Sleep(d) }

// TestOwnTranscriptsThroughAFollower: a follower gives the same answers as the leader, but to messages (docs/differences.md).
func TestOwnTranscriptsThroughAFollower(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	at := list[0]
	if at == leader {
		at = list[1]
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "conformance", "transcript", "own", "*.txt"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		if name == "lock-messages.txt" || name == "history.txt" { // a follower applies a write a moment after the leader has answered
			continue
		}
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := transcript.Parse(name, src)
			if err != nil {
				t.Fatal(err)
			}
			transcript.Run(t, f, slowFollower{at.Addr})
		})
	}
	waitEqual(t, list)
}
