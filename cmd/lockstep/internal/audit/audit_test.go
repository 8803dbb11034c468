package audit

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/server/history"
	"github.com/lockstep-io/lockstep/store"
)

// lines is a log of which tests can await a line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// node is a node that writes its events to a directory.
type node struct {
	t    *testing.T
	dir  string
	size int64
	log  lines
	h    *history.History
	w    *Writer
}

func (n *node) start() {
	n.t.Helper()
	n.h = history.New(1<<20, history.Most, nil)
	var err error
	if n.w, err = Open(n.dir, n.size, slog.New(slog.NewTextHandler(n.log, nil))); err != nil {
		n.t.Fatal(err)
	}
	go n.w.Run(n.h)
}

func (n *node) stop() {
	n.t.Helper()
	if err := n.w.Close(); err != nil {
		n.t.Fatal(err)
	}
}

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: filepath.Join(t.TempDir(), "audit"), size: LeastSize, log: make(lines, 10)}
	n.start()
	return n
}

// grants makes the lock k change its owner in each of the write sets from … to.
func (n *node) grants(from, to uint64) {
	for seq := from; seq <= to; seq++ {
		e := store.LockEvent{How: store.LockGranted, Key: "k", Kind: "plain", Owner: fmt.Sprint("o", seq), Token: seq, Holds: 1, Permits: 1}
		end := e
		end.How, end.Holds = store.LockReleased, 0
		n.h.Locked(seq, store.Time{Wall: int64(seq) * 1_000_000, Lease: int64(seq)}, []store.LockEvent{e, end})
	}
}

// text returns the events in the files, one a line.
func (n *node) text() string {
	n.t.Helper()
	files, err := list(n.dir)
	if err != nil {
		n.t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range files {
		in, err := os.Open(f.path)
		if err != nil {
			n.t.Fatal(err)
		}
		r := newReader(in, f.path)
		for {
			e, err := r.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				n.t.Fatal(err)
			}
			fmt.Fprintf(&b, "%d %v %s%s\n", e.Seq, e.How, e.Owner, e.Reason)
		}
		if err := in.Close(); err != nil {
			n.t.Fatal(err)
		}
	}
	return b.String()
}

// check runs Check, and returns its faults.
func check(t *testing.T, paths ...string) (sum Summary, faults string) {
	t.Helper()
	sum, err := Check(paths, func(text string) { faults += text + "\n" })
	if err != nil {
		t.Fatal(err)
	}
	return sum, faults
}

func expected(from, to int) (text string) {
	for i := from; i <= to; i++ {
		text += fmt.Sprintf("%d granted o%d\n%d released o%d\n", i, i, i, i)
	}
	return text
}

// TestRestarts: whatever a node applies once more after a restart, the files have each event once, and say what is missing.
func TestRestarts(t *testing.T) {
	n := newNode(t)
	n.grants(1, 5)
	n.stop()
	n.start() // from a snapshot after write set 2
	n.h.Lost(2, store.Time{})
	n.grants(3, 9)
	n.stop()
	n.start() // from a snapshot after write set 20: the node was away
	n.h.Lost(20, store.Time{Wall: 20_000_000})
	n.grants(21, 22)
	n.stop()
	if got, want := n.text(), expected(1, 9)+"20 gap a snapshot has replaced the state\n"+expected(21, 22); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if sum, faults := check(t, n.dir); faults != "" || sum.Gaps != 1 || sum.Grants != 11 || sum.Locks != 1 {
		t.Errorf("%+v %s", sum, faults)
	}
}

// TestTornLine: a node that ended within a line goes on behind the last complete one, also within the events of one write set.
func TestTornLine(t *testing.T) {
	n := newNode(t)
	n.grants(1, 5)
	n.stop()
	files, err := list(n.dir)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0].path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(text); cut += 37 {
		if err := os.WriteFile(files[0].path, text[:len(text)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(n.dir, positionName)); err != nil {
			t.Fatal(err)
		}
		n.start()
		n.grants(1, 6)
		n.stop()
		if got, want := n.text(), expected(1, 6); got != want {
			t.Fatalf("cut by %d: got\n%swant\n%s", cut, got, want)
		}
	}
}

// TestAnotherState: after a restore the numbers begin lower. The events are written all the same, behind a gap.
func TestAnotherState(t *testing.T) {
	n := newNode(t)
	n.grants(100, 101)
	n.stop()
	n.start()
	for _, how := range []store.LockHow{store.LockGranted, store.LockReleased} {
		n.h.Locked(7, store.Time{Wall: 200_000_000}, []store.LockEvent{{How: how, Owner: "new"}})
	}
	n.stop()
	if got, want := n.text(), expected(100, 101)+"6 gap the node has another state than before\n7 granted new\n7 released new\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestRotation: the files stay within their size, and the oldest go first.
func TestRotation(t *testing.T) {
	n := newNode(t)
	last := uint64(0)
	for range 30 { // each time about 100 KB
		n.grants(last+1, last+400)
		last += 400
		n.stop()
		n.start()
	}
	n.stop()
	files, err := list(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, f := range files {
		total += f.size
	}
	if total > n.size+n.size/parts+200<<10 || total < n.size/2 || files[0].number == 1 {
		t.Errorf("%d bytes in %d files from number %d", total, len(files), files[0].number)
	}
	if got := n.text(); !strings.HasSuffix(got, expected(int(last)-100, int(last))) {
		t.Error("the latest events are missing")
	}
	if _, faults := check(t, n.dir); faults != "" {
		t.Error(faults)
	}
}

// TestOneWriter: two nodes cannot write to one directory.
func TestOneWriter(t *testing.T) {
	n := newNode(t)
	defer n.stop()
	if _, err := Open(n.dir, 1, nil); err == nil || !strings.Contains(err.Error(), "give each node a directory of its own") {
		t.Error(err)
	}
}

// TestDiskThatFails: events that cannot be written stay in memory, and are written when the disk works again.
func TestDiskThatFails(t *testing.T) {
	n := newNode(t)
	file := filepath.Join(n.dir, fmt.Sprintf(namePattern, 1))
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	n.grants(1, 3)
	if text := <-n.log; !strings.Contains(text, "cannot be written") {
		t.Error(text)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.start()
	n.grants(1, 3)
	n.stop()
	if got := n.text(); got != expected(1, 3) {
		t.Error(got)
	}
}

// TestSwitched: what was missed while lock-audit was no is a gap in the files, although the files have all events before it.
func TestSwitched(t *testing.T) {
	n := newNode(t)
	n.grants(1, 2)
	n.stop() // the position is that of write set 2
	n.start()
	n.grants(1, 2)
	n.h.SetMode(history.Off)
	n.h.SetMode(history.Most)
	n.grants(9, 9)
	n.stop()
	if got, want := n.text(), expected(1, 2)+strings.Repeat("2 gap lock-audit has changed\n", 2)+expected(9, 9); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if sum, faults := check(t, n.dir); faults != "" || sum.Gaps != 2 {
		t.Errorf("%+v %s", sum, faults)
	}
}

// TestEmptyPosition: a loss of power may empty the file of the position. The node starts all the same, and has no event twice.
func TestEmptyPosition(t *testing.T) {
	n := newNode(t)
	n.grants(1, 3)
	n.stop()
	if err := os.WriteFile(filepath.Join(n.dir, positionName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	if text := <-n.log; !strings.Contains(text, "is empty") {
		t.Error(text)
	}
	n.grants(1, 4)
	n.stop()
	if got := n.text(); got != expected(1, 4) {
		t.Error(got)
	}
}

// TestDamagedFile: a file that cannot be read stays as it is, and does not keep the node from starting. The events go on behind a gap.
func TestDamagedFile(t *testing.T) {
	n := newNode(t)
	n.grants(1, 3)
	n.stop()
	damaged := filepath.Join(n.dir, fmt.Sprintf(namePattern, 1))
	if err := os.WriteFile(damaged, make([]byte, 2*maxLine), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	if text := <-n.log; !strings.Contains(text, "is damaged") {
		t.Error(text)
	}
	n.grants(4, 5)
	n.stop()
	if info, err := os.Stat(damaged); err != nil || info.Size() != 2*maxLine {
		t.Errorf("the damaged file is %v, %v", info, err)
	}
	if err := os.Remove(damaged); err != nil {
		t.Fatal(err)
	}
	if got, want := n.text(), "3 gap the file before is damaged\n"+expected(4, 5); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestDeletedDirectory: if somebody deletes the directory, the next events go to a new file behind a gap.
func TestDeletedDirectory(t *testing.T) {
	n := newNode(t)
	n.grants(1, 3)
	for {
		if text, err := os.ReadFile(filepath.Join(n.dir, positionName)); err == nil && string(text) == "3\n" {
			break
		}
	}
	if err := os.RemoveAll(n.dir); err != nil {
		t.Fatal(err)
	}
	n.grants(4, 5)
	n.stop()
	if text := <-n.log; !strings.Contains(text, "were deleted") {
		t.Error(text)
	}
	if got, want := n.text(), "3 gap the files were deleted\n"+expected(4, 5); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
