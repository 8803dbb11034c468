package raftfsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// answering returns an entry for the present state of f, with the given answers.
func answering(f *FSM, lease int64, list ...Answer) []byte {
	e := Entry{Prev: f.seq, Lease: lease, Requests: AppendAnswers(nil, list)}
	return e.Append(nil)
}

func (f *FSM) lookup(origin, id uint64) (replies string, executed bool) {
	f.ViewAnswers(func(_ *store.Store, _ uint64, done *Answers) {
		b, ok := done.Lookup(origin, id)
		replies, executed = string(b), ok
	})
	return replies, executed
}

func (f *FSM) expectAnswers(t *testing.T, origin uint64, want map[uint64]string) {
	t.Helper()
	for id := uint64(1); id < 20; id++ {
		got, ok := f.lookup(origin, id)
		if w, exists := want[id]; ok != exists || got != w {
			t.Errorf("answer %d of %d: %q %v, want %q %v", id, origin, got, ok, w, exists)
		}
	}
	f.ViewAnswers(func(_ *store.Store, _ uint64, done *Answers) {
		size := 0
		for _, o := range done.origins {
			for _, r := range o.replies {
				size += len(r)
			}
		}
		if done.Size() != size {
			t.Errorf("%d bytes of answers are counted, %d there", done.Size(), size)
		}
	})
}

func TestAnswers(t *testing.T) {
	f := New(nil)
	apply(t, f, 1, answering(f, 1000, Answer{7, 3, 2, []byte("three")}, Answer{8, 3, 1, []byte("other")}, Answer{7, 2, 2, []byte("two")}))
	f.expectAnswers(t, 7, map[uint64]string{2: "two", 3: "three"})
	f.expectAnswers(t, 8, map[uint64]string{3: "other"})
	// Origin 7 has got the reply to request 2, and still waits for those to request 4 and later ones.
	apply(t, f, 2, answering(f, 2000, Answer{7, 5, 3, []byte("five")}, Answer{7, 6, 4, nil}))
	f.expectAnswers(t, 7, map[uint64]string{5: "five", 6: ""})
	// Origin 7 gave up request 3 before it was executed, so it will never ask for the reply.
	apply(t, f, 3, answering(f, 2000, Answer{7, 3, 3, []byte("late")}))
	f.expectAnswers(t, 7, map[uint64]string{5: "five", 6: ""})
	// An entry that is not accepted answers nothing.
	stale := Entry{Prev: 1, Lease: 3000, Requests: AppendAnswers(nil, []Answer{{7, 9, 1, []byte("void")}})}
	apply(t, f, 4, stale.Append(nil))
	f.expectAnswers(t, 7, map[uint64]string{5: "five", 6: ""})
	// The numbers of an origin may leap.
	apply(t, f, 5, answering(f, 3000, Answer{7, 1 << 60, 1 << 60, []byte("far")}))
	f.expectAnswers(t, 7, nil)
	if got, ok := f.lookup(7, 1<<60); !ok || got != "far" {
		t.Errorf("the far one: %q %v", got, ok)
	}
	// Replies may be large, and a request may be answered twice.
	large := strings.Repeat("x", 1024)
	apply(t, f, 6, answering(f, 3000, Answer{9, 1, 1, []byte(large)}, Answer{9, 2, 1, []byte("small")}, Answer{9, 3, 1, []byte(large)}))
	apply(t, f, 7, answering(f, 3000, Answer{9, 3, 2, []byte("again")}))
	f.expectAnswers(t, 9, map[uint64]string{2: "small", 3: "again"})
	apply(t, f, 8, answering(f, 3000, Answer{9, 10, 10, []byte(large)}))
	f.expectAnswers(t, 9, map[uint64]string{10: large})
}

// TestAnswersOfOneOriginAreBounded: the answers to an origin take bounded memory even if one of its requests waits for long.
func TestAnswersOfOneOriginAreBounded(t *testing.T) {
	f := New(nil)
	const waits, each = 1, 100
	id, most := uint64(waits), 0
	for range 3 * MaxOrigin / answerTakes / each {
		var list []Answer
		low := max(waits, f.done.Due(7))
		for range each {
			id++
			list = append(list, Answer{7, id, low, []byte("OK")})
		}
		// A second request that waits for long must not keep the answers to other requests either.
		list = append(list, Answer{7, waits + id%each, low, []byte("late")})
		apply(t, f, f.index+1, answering(f, 1000, list...))
		most = max(most, f.done.origins[7].takes())
	}
	if most > MaxOrigin+2*each*answerTakes || most < MaxOrigin {
		t.Errorf("the answers took %d bytes", most)
	}
	low := f.done.origins[7].low
	for got, want := range map[bool]bool{f.done.Forgotten(7, waits): true, f.done.Forgotten(7, low): false, low > id-2*MaxOrigin/answerTakes: true} {
		if got != want {
			t.Errorf("the lowest is %d of %d", low, id)
		}
	}
	if got, ok := f.lookup(7, id); !ok || got != "OK" {
		t.Errorf("the last one: %q %v", got, ok)
	}
	restored := New(nil)
	if err := restored.Restore(bytes.NewReader(encode(t, f)), 0); err != nil || !bytes.Equal(encode(t, f), encode(t, restored)) {
		t.Errorf("the restored state is another: %v", err)
	}
}

// TestAnswersKeepNoOthersInMemory: one entry has answers to several origins. If one of them is kept for long, the others must
// not stay in memory with it.
func TestAnswersKeepNoOthersInMemory(t *testing.T) {
	f := New(nil)
	const entries = 2000
	reply := bytes.Repeat([]byte("x"), 480)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, id := heap(), uint64(0)
	for i := range uint64(entries) {
		list := []Answer{{8, i + 1, 1, []byte("OK")}} // this origin still waits for the reply to its first request
		for range 100 {
			id++
			list = append(list, Answer{7, id, id, reply})
		}
		apply(t, f, f.index+1, answering(f, 1000, list...))
	}
	if grown := heap() - before; grown > 20<<20 {
		t.Errorf("%d answers keep %d MB", entries, grown>>20)
	}
	runtime.KeepAlive(f)
}

// TestAnswersOfManyOriginsAreBounded: the answers to all origins take bounded memory, although each start of a node is a new origin.
func TestAnswersOfManyOriginsAreBounded(t *testing.T) {
	f := New(nil)
	reply, most := bytes.Repeat([]byte("x"), 500), 0
	for boot := range uint64(20) {
		for i := range uint64(100) {
			var list []Answer
			for j := range uint64(100) {
				list = append(list, Answer{boot + 1, 100*i + j + 1, 1, reply})
			}
			apply(t, f, f.index+1, answering(f, int64(1000+boot), list...))
			most = max(most, f.done.takes())
		}
	}
	if most > MaxAnswers+100*(500+answerTakes) || most < MaxAnswers/2 {
		t.Errorf("the answers took %d bytes", most)
	}
	if got, ok := f.lookup(20, 10_000); !ok || got != string(reply) || !f.done.Forgotten(1, 10_000) {
		t.Errorf("the last one %t, the first one's forgotten %t", ok, f.done.Forgotten(1, 10_000))
	}
	count, size := 0, 0
	for _, o := range f.done.origins {
		count += len(o.replies)
		for _, r := range o.replies {
			size += len(r)
		}
	}
	if count != f.done.count || size != f.done.size {
		t.Errorf("counted %d answers of %d bytes, there are %d of %d", f.done.count, f.done.size, count, size)
	}
}

// TestAnswersOfTheDead: if no more requests of an origin are executed, the answers to it are dropped after OriginLifetime.
func TestAnswersOfTheDead(t *testing.T) {
	f := New(nil)
	apply(t, f, 1, answering(f, 1000, Answer{7, 1, 1, []byte("one")}))
	apply(t, f, 2, answering(f, 1000+OriginLifetime, Answer{8, 1, 1, []byte("one")}))
	f.expectAnswers(t, 7, map[uint64]string{1: "one"})
	apply(t, f, 3, answering(f, 1000+OriginLifetime+sweepEvery, Answer{8, 2, 1, []byte("two")}))
	f.expectAnswers(t, 7, nil)
	f.expectAnswers(t, 8, map[uint64]string{1: "one", 2: "two"})
}

// TestAnswersInSnapshots: answers are part of the state, and the bytes of a snapshot do not depend on the order in which the answers
// came.
func TestAnswersInSnapshots(t *testing.T) {
	a, b := New(nil), New(nil)
	var list []Answer
	for i := range 10 {
		list = append(list, Answer{uint64(i%3 + 1), uint64(i + 1), 1, fmt.Appendf(nil, "reply %d", i)})
	}
	apply(t, a, 1, answering(a, 1000, list...))
	apply(t, b, 1, answering(b, 1000, list...))
	data := encode(t, a)
	if !bytes.Equal(data, encode(t, b)) {
		t.Fatal("equal histories, different bytes")
	}
	c := New(nil)
	if err := c.Restore(bytes.NewReader(data), 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, encode(t, c)) || !reflect.DeepEqual(a.done, c.done) {
		t.Error("the restored state is another")
	}
	next := answering(a, 2000, Answer{1, 11, 7, []byte("eleven")})
	apply(t, a, 2, next)
	apply(t, c, 2, next)
	if !bytes.Equal(encode(t, a), encode(t, c)) {
		t.Error("the restored state goes on differently")
	}
}

// TestDamagedAnswers: damaged bytes never make the decoder panic, or allocate memory for more answers than the bytes can hold.
func TestDamagedAnswers(t *testing.T) {
	good := AppendAnswers(nil, sampleAnswers())
	for n := 1; n < len(good); n++ {
		if _, err := readAnswers(good[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v", n, len(good), err)
		}
	}
	if _, err := readAnswers(append(bytes.Clone(good), 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
	if _, err := readAnswers(bytes.Repeat([]byte{0xff}, 9)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a count beyond all bytes: %v", err)
	}
	f := New(nil)
	e := Entry{Requests: []byte{1}, Writes: nil}
	if _, err := f.Apply(1, e.Append(nil)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("an entry with damaged requests: %v", err)
	}
	var table Answers
	table.add(sampleAnswers(), 5, 5)
	snap := table.append(nil)
	for n := range snap {
		var got Answers
		r := codec.NewStream(bytes.NewReader(snap[:n]))
		if got.read(r, 5); r.Err == nil {
			t.Errorf("%d of %d bytes of a snapshot were taken for all", n, len(snap))
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(AppendAnswers(nil, sampleAnswers()))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := readAnswers(b)
		if err != nil || len(list) == 0 {
			return
		}
		again, err := readAnswers(AppendAnswers(nil, list))
		if err != nil || len(again) != len(list) {
			t.Fatalf("%v: %v", list, err)
		}
		for i := range list {
			if again[i].Origin != list[i].Origin || again[i].ID != list[i].ID || !bytes.Equal(again[i].Replies, list[i].Replies) {
				t.Fatalf("%v became %v", list[i], again[i])
			}
		}
	})
}

// TestAnswerToTheLargestNumber: if a peer gives a request the largest number, the nodes do not loop for ever.
func TestAnswerToTheLargestNumber(t *testing.T) {
	done := make(chan bool)
	go func() {
		var a Answers
		a.add([]Answer{{Origin: 1, ID: math.MaxUint64, Low: math.MaxUint64, Replies: []byte("OK")}}, 0, 1)
		for id := uint64(1); id <= 70; id++ {
			a.add([]Answer{{Origin: 1 + id, ID: 1, Low: 1, Replies: make([]byte, 1<<19)}}, 1, 2)
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		t.Error("add does not return")
	}
}

// TestImpossibleAnswers: a snapshot is refused if it has an origin or a request twice, or one that no node would keep.
func TestImpossibleAnswers(t *testing.T) {
	type request struct{ origin, low, last, id uint64 }
	for _, c := range []struct {
		fault string // "" if there is none
		list  []request
	}{
		{"", []request{{7, 1, 1000, 1}, {8, 2, 0, math.MaxUint64}}},
		{"origin 7", []request{{7, 1, 1000, 1}, {7, 1, 1000, 2}}},
		{"origin 7", []request{{8, 1, 1000, 1}, {7, 1, 1000, 1}}},
		{"stamp 1001", []request{{7, 1, 1001, 1}}},
		{"stamp -1", []request{{7, 1, math.MaxUint64, 1}}},
		{"request 1", []request{{7, 2, 1000, 1}}},
	} {
		b := binary.AppendUvarint(nil, uint64(len(c.list)))
		for _, q := range c.list {
			b = binary.BigEndian.AppendUint64(b, q.origin)
			for _, n := range []uint64{q.low, q.last, 1, q.id} {
				b = binary.AppendUvarint(b, n)
			}
			b = codec.AppendStr(b, []byte("OK"))
		}
		r := codec.NewStream(bytes.NewReader(b))
		var got Answers
		got.read(r, 1000)
		if refused := r.Err != nil; refused != (c.fault != "") || refused && !strings.Contains(r.Err.Error(), c.fault) {
			t.Errorf("%v: %v, want %q", c.list, r.Err, c.fault)
		}
	}
	twice := []byte{1, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 2, 5, 2, 'O', 'K', 5, 2, 'O', 'K'}
	r := codec.NewStream(bytes.NewReader(twice))
	var got Answers
	if got.read(r, 1000); r.Err == nil || !strings.Contains(r.Err.Error(), "request 5") {
		t.Errorf("a request twice: %v", r.Err)
	}
	wrong := Answers{size: MaxAnswers + 1} // a wrong count must not stop the node
	wrong.add(nil, 0, 1)
}
