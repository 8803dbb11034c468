package datadir

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Raft holds only the heads of long entries. An entry that is applied or sent has its data and its head's term.
func TestLongEntriesAreReadWhereTheyAreNeeded(t *testing.T) {
	st, err := openDir(t.TempDir(), LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	g := st.Log
	entry := func(index, term uint64, size int) *raft.Log {
		return &raft.Log{Index: index, Term: term, Data: bytes.Repeat([]byte{byte(index)}, size)}
	}
	const count, size, maxAppend = 20, 256 << 10, 1 << 20
	var list []*raft.Log
	for i := uint64(1); i <= count; i++ {
		list = append(list, entry(i, 1, size))
	}
	t.Cleanup(func() { st.Close() })
	if err := g.StoreLogs(list); err != nil {
		t.Fatal(err)
	}
	if len(list[0].Data) != size {
		t.Error("Raft's own entry has lost its data")
	}
	for _, known := range []bool{true, false} { // with the heads that this process has kept, and without any, as after a start
		if !known {
			g.long.forget()
		}
		var req raft.AppendEntriesRequest
		for i := uint64(1); i <= count; i++ {
			var l raft.Log
			if err := g.GetLog(i, &l); err != nil || !isHead(&l) || l.Index != i || l.Term != 1 {
				t.Fatalf("entry %d: %d bytes, term %d, %v", l.Index, len(l.Data), l.Term, err)
			}
			req.Entries = append(req.Entries, &l)
		}
		applied := *req.Entries[7]
		if err := g.Load(&applied); err != nil || !bytes.Equal(applied.Data, list[7].Data) {
			t.Errorf("to be applied: %d bytes, %v", len(applied.Data), err)
		}
		if err := g.LoadBatch(&req, maxAppend); err != nil || len(req.Entries) != maxAppend/size {
			t.Errorf("%d entries are sent at once, %v", len(req.Entries), err)
		}
		for i, l := range req.Entries {
			if l.Index != uint64(i+1) || !bytes.Equal(l.Data, list[i].Data) {
				t.Errorf("entry %d is sent with %d bytes", l.Index, len(l.Data))
			}
		}
	}
	var old raft.Log
	if err := g.GetLog(count, &old); err != nil {
		t.Fatal(err)
	}
	if err := g.DeleteRange(count, count); err != nil {
		t.Fatal(err)
	}
	if err := g.GetLog(count, new(raft.Log)); err != raft.ErrLogNotFound {
		t.Errorf("what was cut off: %v", err)
	}
	if err := g.StoreLogs([]*raft.Log{entry(count, 2, LongEntry)}); err != nil {
		t.Fatal(err)
	}
	if err := g.Load(&old); err == nil {
		t.Error("the head of what was cut off has the data of another leader's entry")
	}
	var now raft.Log
	if err := g.GetLog(count, &now); err != nil || now.Term != 2 || g.long.sizeOf(&now) != LongEntry {
		t.Errorf("what stands there now: term %d, %d bytes, %v", now.Term, g.long.sizeOf(&now), err)
	}
	one := raft.AppendEntriesRequest{Entries: []*raft.Log{entry(1, 1, 8<<20), entry(2, 1, 1)}}
	if err := g.LoadBatch(&one, maxAppend); err != nil || len(one.Entries) != 1 {
		t.Errorf("beside a very long one: %d entries, %v", len(one.Entries), err)
	}
	many := raft.AppendEntriesRequest{Entries: []*raft.Log{entry(1, 1, 1), entry(2, 1, 2), entry(3, 1, 3)}}
	if err := g.LoadBatch(&many, maxAppend); err != nil || len(many.Entries) != 3 {
		t.Errorf("of short ones: %d entries, %v", len(many.Entries), err)
	}
}

// TestFewHeadsAreKept: few heads of long entries are kept, because a log may have millions of them.
func TestFewHeadsAreKept(t *testing.T) {
	var g longEntries
	for i := range uint64(2 * mostHeads) {
		g.stored([]*raft.Log{{Index: i + 1, Data: make([]byte, LongEntry)}})
	}
	if n := len(g.heads); n > mostHeads {
		t.Errorf("%d heads are kept", n)
	}
	kept, forgotten := 0, 0
	for i := range uint64(2 * mostHeads) {
		switch g.sizeOf(&raft.Log{Index: i + 1, Data: elsewhere}) {
		case LongEntry:
			kept++
		case unknownSize:
			forgotten++
		}
	}
	if kept != mostHeads || forgotten != mostHeads {
		t.Errorf("%d heads are kept, %d have an unknown size", kept, forgotten)
	}
}

// A full segment keeps no buffer in memory. Its entries can be read at any time.
func TestFullSegmentsHoldNoBuffers(t *testing.T) {
	dir := t.TempDir()
	var stored atomic.Uint64
	open := func() logStore {
		l, err := openWAL(SystemDisk(), dir, stored.Load(), hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const count, size = 24, 6 << 20
	data := func(i uint64) []byte { return bytes.Repeat([]byte{byte(i)}, size) }
	list := open()
	before := inUse()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if last := stored.Load(); last > 0 {
				var l raft.Log
				if err := list.GetLog(1+i%last, &l); err != nil || len(l.Data) != size || l.Data[0] != byte(l.Index) {
					t.Errorf("entry %d of %d: %d bytes, %v", 1+i%last, last, len(l.Data), err)
				}
			}
		}
	}()
	for i := uint64(1); i <= count; i++ {
		if err := list.StoreLogs([]*raft.Log{{Index: i, Term: 1, Data: data(i)}}); err != nil {
			t.Fatal(err)
		}
		stored.Store(i)
	}
	close(stop)
	<-done
	if after := inUse(); after > before+24<<20 {
		t.Errorf("%d entries of %d MB keep %d MB", count, size>>20, (after-before)>>20)
	}
	for range 2 {
		for i := uint64(1); i <= count; i++ {
			var l raft.Log
			if err := list.GetLog(i, &l); err != nil || !bytes.Equal(l.Data, data(i)) {
				t.Fatalf("entry %d: %d bytes, %v", i, len(l.Data), err)
			}
		}
		if err := list.Close(); err != nil {
			t.Fatal(err)
		}
		list = open()
	}
	if err := list.Close(); err != nil {
		t.Fatal(err)
	}
}
