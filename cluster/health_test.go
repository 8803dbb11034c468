package cluster

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// linesOf counts the lines of a log, by their text.
type linesOf struct {
	mu    sync.Mutex
	count map[string]int
	all   int
}

func (l *linesOf) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l *linesOf) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *linesOf) WithGroup(string) slog.Handler                    { return l }
func (l *linesOf) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "id" || a.Key == "silent" {
			text += " " + a.Value.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[text]++
	l.all++
	return nil
}

func (l *linesOf) of(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text, count := range l.count {
		if strings.Contains(text, part) {
			n += count
		}
	}
	return n
}

// The log has one line when a member dies, however long it stays dead, when the majority is lost, and when the majority is back.
func TestLogSaysWhatChanges(t *testing.T) {
	logs := map[string]*linesOf{}
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		dead, other := (leader+1)%3, (leader+2)%3
		l := logs[c.cfg[leader].ID]
		want := func(when string, lines map[string]int, most int) {
			t.Helper()
			for text, n := range lines {
				if got := l.of(text); got != n {
					t.Errorf("%s: %q is said %d times, not %d", when, text, got, n)
				}
			}
			if l.all > most {
				t.Errorf("%s: %d lines: %v", when, l.all, l.count)
			}
		}
		c.crash(dead)
		time.Sleep(10 * time.Minute)
		down := "A member is down: nothing is heard of it " + c.cfg[dead].ID
		want("one is dead", map[string]int{down: 1, "A member is down": 1, "No majority": 0, "No leader": 0}, 30)
		c.crash(other)
		time.Sleep(10 * time.Minute)
		want("two are dead", map[string]int{down: 1, "A member is down": 2, "No majority": 1, "No leader": 1}, 60)
		c.start(dead)
		time.Sleep(10 * time.Second)
		want("one is back", map[string]int{"A member is up again": 1, "There is a majority again": 1, "There is a leader again": 1, "No majority": 1}, 90)
		for text, n := range l.count {
			t.Log(n, text)
		}
	}, func(cfg *Config) {
		logs[cfg.ID] = &linesOf{count: map[string]int{}}
		cfg.Logger = slog.New(logs[cfg.ID])
	})
}

// scarceDisk is the machine's disk; the test says when it has no room.
type scarceDisk struct {
	crashdisk.UnsyncedFiles
	full *atomic.Bool
}

type scarceFile struct {
	datadir.File
	full *atomic.Bool
}

func (d scarceDisk) Create(path string) (datadir.File, error) {
	f, err := d.UnsyncedFiles.Create(path)
	return scarceFile{f, d.full}, err
}

func (d scarceDisk) Open(path string) (datadir.File, error) {
	f, err := d.UnsyncedFiles.Open(path)
	return scarceFile{f, d.full}, err
}

func (f scarceFile) Reserve(from, length int64, fill bool) error {
	if f.full.Load() {
		return syscall.ENOSPC
	}
	return f.File.Reserve(from, length, fill)
}

// A single node whose disk is full does not lead anew each second.
func TestFullDiskDoesNotFlap(t *testing.T) {
	full, l := new(atomic.Bool), &linesOf{count: map[string]int{}}
	cfg := dataConfig(t, t.TempDir())
	cfg.disk = smallSegments()
	cfg.disk.Files = scarceDisk{full: full}
	cfg.FailoverWait, cfg.DownAfter, cfg.Logger = 50*ms, 200*ms, slog.New(l)
	n := openNode(t, cfg)
	defer closeNode(t, n)
	full.Store(true)
	big := strings.Repeat("x", 2000)
	for deadline := time.Now().Add(20 * time.Second); n.Trouble() == ""; {
		lines(t, n, "SET k "+big)
		if time.Now().After(deadline) {
			t.Fatal("the disk takes everything")
		}
	}
	time.Sleep(100 * ms)
	n.mu.Lock()
	before := n.elections
	n.mu.Unlock()
	for range 10 {
		time.Sleep(100 * ms)
		if got := lines(t, n, "SET k v"); got != "-CLUSTERDOWN" {
			t.Errorf("told %q", got)
		}
	}
	if n.downError() != ErrDiskFull {
		t.Errorf("clients are told %q", n.downError())
	}
	n.mu.Lock()
	led := n.elections - before
	n.mu.Unlock()
	if led > 0 {
		t.Errorf("in a second it began to lead %d times", led)
	}
	full.Store(false)
	for deadline := time.Now().Add(20 * time.Second); lines(t, n, "SET k v") != "OK"; {
		if time.Now().After(deadline) {
			t.Fatal("there is room, and it does not go on")
		}
	}
	for text, most := range map[string]int{"The disk is full": 1, "The log can be written again": 1, "leader n1": 1, "No leader": 1} {
		if got := l.of(text); got > most {
			t.Errorf("%q is said %d times", text, got)
		}
	}
}

// TestRemovedNodeServesNobodyAtOnce: what is sent to a node after its removal is not executed.
func TestRemovedNodeServesNobodyAtOnce(t *testing.T) {
	c := startThree(t, func(cfg *Config) { cfg.FailoverWait = 300 * ms })
	c.start(0, 1, 2)
	leader := c.leader()
	out := (leader + 1) % 3
	c.expect(out, "OK", "SET k v")
	c.mustRemove(leader, c.cfg[out].ID)
	time.Sleep(50 * ms) // what is on its way
	for i := range 10 {
		if got := c.do(out, "SET k v"); got == "OK" {
			t.Fatalf("question %d: it answers OK", i)
		}
	}
}
