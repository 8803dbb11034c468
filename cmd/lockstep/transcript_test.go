package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// movedTime is the machine's clock, moved forward by the time that transcripts ask for.
type movedTime struct {
	*cluster.SystemTime
	moved atomic.Int64
}

func (m *movedTime) Monotonic() time.Duration {
	return m.SystemTime.Monotonic() + time.Duration(m.moved.Load())
}

func (m *movedTime) Wall() time.Time {
	return m.SystemTime.Wall().Add(time.Duration(m.moved.Load()))
}

// inProcess is a complete ephemeral node that runs inside the test.
type inProcess struct {
	t     *testing.T
	addr  string
	clock *movedTime
	wrap  func(net.Listener) net.Listener
}

func (p *inProcess) Dial() (net.Conn, error) { return net.Dial("tcp", p.addr) }
func (p *inProcess) Advance(d time.Duration) { p.clock.moved.Add(int64(d)) }

// With starts a node of its own for a transcript that needs other settings.
func (p *inProcess) With(settings [][2]string) (transcript.Target, func(), error) {
	other, stop := startInProcessOn(p.t, settings, p.wrap)
	return other, stop, nil
}

func startInProcess(t *testing.T, settings [][2]string) (*inProcess, func()) {
	t.Helper()
	return startInProcessOn(t, settings, func(ln net.Listener) net.Listener { return ln })
}

// withoutLoops hides from the server that ln is a TCP listener. The server then uses a goroutine for each connection, as on systems
// without epoll.
func withoutLoops(ln net.Listener) net.Listener { return struct{ net.Listener }{ln} }

func startInProcessOn(t *testing.T, settings [][2]string, wrap func(net.Listener) net.Listener) (*inProcess, func()) {
	t.Helper()
	// Redis has no script-time-limit, so even on a slow machine no script of a transcript may reach this one.
	o := options{id: "n1", listen: "127.0.0.1:0", protected: "yes", voter: "yes", sentinelAuth: "yes", ephemeral: true,
		failoverWait: time.Second, scriptLimit: 10 * time.Minute}
	for _, kv := range settings {
		if kv[0] != "enable-debug-command" {
			t.Fatalf("a transcript needs the setting %s, which this test does not know", kv[0])
		}
		o.debugCommand = kv[1]
	}
	cfg, err := o.clusterConfig()
	if err != nil {
		t.Fatal(err)
	}
	clock := &movedTime{SystemTime: cluster.NewSystemTime()}
	log := slog.New(slog.DiscardHandler)
	parts, err := assemble(o, cfg, memoryPlan{}, clock, log, func() {})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- parts.server.Serve(wrap(parts.listeners.plain)) }()
	stop := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := parts.server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := parts.node.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	return &inProcess{t: t, addr: parts.listeners.plain.Addr().String(), clock: clock, wrap: wrap}, stop
}

// notYet names the transcripts that the tests do not play, with the reason.
var notYet = map[string]string{
	"differs/": "where lockstep knowingly differs: each file says how",
}

func isNotYet(name string) bool {
	for prefix := range notYet {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// TestTranscripts plays all transcripts against a complete node: those recorded from redis-server 7.0.15, and those of commands that it does
// not have.
func TestTranscripts(t *testing.T) {
	target, stop := startInProcess(t, nil)
	defer stop()
	playAll(t, target)
}

// TestTranscriptsWithoutLoops: a node that serves each connection by a goroutine gives the same answers as one with event
// loops.
func TestTranscriptsWithoutLoops(t *testing.T) {
	target, stop := startInProcessOn(t, nil, withoutLoops)
	defer stop()
	playAll(t, target)
}

// hasMoreCategories reports whether a reply differs from that of Redis in that lockstep has one ACL category more: lock.
func hasMoreCategories(d transcript.Mismatch) bool {
	return d.Source == "> ACL CAT" && len(d.Want) == 22 && len(d.Got) == 23 && d.Want[0] == "*21" && d.Got[0] == "*22"
}

func playAll(t *testing.T, target transcript.Target) {
	playUnder(t, target, "testdata")
	playUnder(t, target, "own")
}

func playUnder(t *testing.T, target transcript.Target, dir string) {
	root := filepath.Join("..", "..", "conformance", "transcript", dir)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".txt" {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if isNotYet(name) {
			return nil
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
			diffs, err := transcript.Check(f, target)
			for _, d := range diffs {
				if !hasMoreCategories(d) {
					t.Error(d)
				}
			}
			switch {
			case errors.Is(err, transcript.ErrNotConfigurable):
				t.Skip(err)
			case err != nil:
				t.Error(err)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
