package history

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

func event(i int) store.LockEvent {
	return store.LockEvent{How: store.LockGranted, DB: 3, Key: fmt.Sprint("key", i), Kind: "plain", Owner: strings.Repeat("o", i%1000), Token: uint64(i) + 1, Holds: 1, Permits: 2, Limit: 3, Deadline: 4,
		User: "u", Reason: "r\xff"}
}

func kept(h *History) (list []Event) {
	h.View().Each("", func(e *Event) bool {
		list = append(list, *e)
		return true
	})
	return list
}

// TestRing: the ring keeps the latest events within its size, says that others are gone, and a reader that keeps up misses none.
func TestRing(t *testing.T) {
	const size = 4 * blockSize
	h := New(size, Every, nil)
	var at Cursor
	read := 0
	next := func() {
		for {
			list, to, _, more := h.Next(at)
			at = to
			if more != nil {
				return
			}
			for _, e := range list {
				if want := (Event{LockEvent: event(read), Seq: uint64(read), At: int64(read), Lease: int64(read)}); !reflect.DeepEqual(e, want) {
					t.Fatalf("event %d is %+v", read, e)
				}
				read++
			}
		}
	}
	const n = 2000
	for i := range n {
		h.Locked(uint64(i), store.Time{Wall: int64(i) * 1000, Lease: int64(i)}, []store.LockEvent{event(i)})
		if i%7 == 0 {
			next()
		}
	}
	if next(); read != n {
		t.Errorf("read %d of %d events", read, n)
	}
	list := kept(h)
	if len(list) < 100 || len(list) > n/2 {
		t.Fatalf("%d events are kept", len(list))
	}
	for i, e := range list[1:] {
		if want := n - len(list) + 1 + i; e.Seq != uint64(want) {
			t.Fatalf("event %d is number %d, want %d", i, e.Seq, want)
		}
	}
	if list[0].How != store.LockGap || list[0].Seq != list[1].Seq-1 {
		t.Errorf("the first event is %+v", list[0])
	}
	if got, _, _, _ := h.Next(Cursor{}); got[0].How != store.LockGap {
		t.Errorf("a reader that comes late gets %+v first", got[0])
	}
	if got := h.Counts()["plain"][store.LockGranted]; got != n {
		t.Errorf("counted %d", got)
	}
}

// TestView: what a reader of one lock, of the latest events or of those from a number on gets is what it would find among all events, with
// those that concern every lock.
func TestView(t *testing.T) {
	h := New(6*blockSize, Every, nil)
	for i := range 6000 {
		e := event(i % 97)
		if i%211 == 0 {
			e = event(1000 + i)
		}
		if i == 4000 {
			e = store.LockEvent{How: store.LockFlushed, DB: 3}
		}
		h.Locked(uint64(i), store.Time{}, []store.LockEvent{e})
	}
	all, decoded := kept(h), 0
	for _, key := range []string{"key3", "key3110", "key6064", "nothing"} {
		wants := func(e *Event) bool { return e.Kind == "" || e.Key == key }
		list := func(v View) (seqs []uint64) {
			v.Each(key, func(e *Event) bool {
				if decoded++; wants(e) {
					seqs = append(seqs, e.Seq)
				}
				return true
			})
			return seqs
		}
		var want []uint64
		for i := range all {
			if wants(&all[i]) {
				want = append(want, all[i].Seq)
			}
		}
		decoded = 0
		if got := list(h.View()); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
		if key != "key3" && decoded > len(all)*3/4 {
			t.Errorf("%s: %d of %d events were decoded", key, decoded, len(all))
		}
		for n := 1; n <= len(want)+1; n++ {
			v, has := h.View().Latest(int64(n), key, wants)
			got := list(v)
			if int64(len(got)) != has || len(got) < min(n, len(want)) || !slices.Equal(got, want[len(want)-len(got):]) {
				t.Errorf("%s, the last %d: %d %v, want the end of %v", key, n, has, got, want)
			}
		}
		for from := range uint64(6100) {
			got := list(h.View().From(from))
			at, _ := slices.BinarySearch(want, from)
			if !slices.Equal(got[max(len(got)-len(want)+at, 0):], want[at:]) {
				t.Fatalf("%s, from %d: %v, want the end of %v", key, from, got, want)
			}
		}
	}
}

// TestModes: renewals are kept only if all events are, and each change of the mode leaves a gap.
func TestModes(t *testing.T) {
	var told []string
	h := New(1, Off, func(e Event) { told = append(told, e.How.String()) })
	both := []store.LockEvent{{How: store.LockGranted}, {How: store.LockRenewed}}
	for i, m := range []Mode{Off, Most, Every, Every, Off} {
		if h.SetMode(m); h.Wanted() {
			h.Locked(uint64(i), store.Time{}, both)
		}
	}
	h.Lost(9, store.Time{})
	if got := strings.Join(told, " "); got != "gap granted gap granted renewed granted renewed gap" {
		t.Error(got)
	}
}

// TestNextWakes: a reader that has read all is woken by the next event.
func TestNextWakes(t *testing.T) {
	h := New(1, Most, nil)
	list, at, _, more := h.Next(Cursor{})
	if len(list) != 0 {
		t.Fatal(list)
	}
	h.Locked(1, store.Time{}, []store.LockEvent{event(1)})
	<-more
	if list, _, _, _ := h.Next(at); len(list) != 1 || list[0].Seq != 1 {
		t.Error(list)
	}
}

// TestJSON: what AppendJSON writes is read back, whatever bytes the names have.
func TestJSON(t *testing.T) {
	e := Event{LockEvent: event(5), Seq: 7, At: 1_700_000_000_123, Lease: 99, Node: "n2", ClientID: 17}
	e.Key, e.Owner, e.Reason = "a\x00\xffb", "\"\n\u2028", "why"
	text := e.AppendJSON(nil)
	if got, err := ParseJSON(text); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("%s\n%+v\n%+v %v", text, got, e, err)
	}
	for _, bad := range []string{"", "{}", `{"at":"2026-01-01T00:00:00.000Z","event":"no"}`, `{"at":"2026-01-01T00:00:00.000Z","event":"gap","key64":"!"}`} {
		if _, err := ParseJSON([]byte(bad)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}
