package store

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// heard is a Sink that keeps what was published.
type heard struct{ list []string }

func (h *heard) Publish(_ PublishKind, channel, message string) {
	h.list = append(h.list, channel+" "+message)
}

// take returns what was published since the last call of take.
func (h *heard) take() string {
	text := strings.Join(h.list, ", ")
	h.list = nil
	return text
}

// setEvents sets notify-keyspace-events.
func (d *testDB) setEvents(value string) {
	d.t.Helper()
	txn := d.begin()
	txn.SetConfig(ParamEvents, value)
	d.apply(txn)
}

// The events of single commands are tested by the transcripts in events/.

func TestEventsFollowTheWrite(t *testing.T) {
	d, h := newTestDB(t), &heard{}
	d.sink = h
	d.do("SET", "quiet", "v")
	d.setEvents("KEA")
	for _, c := range []struct{ call, want string }{
		{"SET k v", "__keyspace@0__:k set, __keyevent@0__:set k"},
		{"EXPIRE k 1", "__keyspace@0__:k expire, __keyevent@0__:expire k"},
		{"GET k", ""},
		{"GET nosuch", ""},
	} {
		d.do(words(c.call)...)
		if got := h.take(); got != c.want {
			t.Errorf("%s: published %q, want %q", c.call, got, c.want)
		}
	}
	d.advance(1001)
	txn := d.begin()
	txn.ExpireDue(10, math.MaxInt, math.MaxInt)
	d.apply(txn)
	if got, want := h.take(), "__keyspace@0__:k expired, __keyevent@0__:expired k"; got != want {
		t.Errorf("published %q, want %q", got, want)
	}
}

func TestNoEventsNoBytes(t *testing.T) {
	calls := []string{"SET a v PX 1000", "HSET h f v", "GET nosuch", "DEL h", "RPUSH l a b", "LPOP l", "SUNIONSTORE s nosuch"}
	plain, off := newTestDB(t), newTestDB(t)
	off.setEvents("KEA")
	off.setEvents("")
	for _, call := range calls {
		plain.do(words(call)...)
		off.do(words(call)...)
		if plain.wrote != off.wrote {
			t.Errorf("%s: %d writes, without notifications ever %d", call, off.wrote, plain.wrote)
		}
	}
	for _, value := range []string{"A", "g$lshzxmn"} { // without K and E, no event is published
		off.setEvents(value)
		off.do("SET", "b", "v")
		if off.wrote != 1 {
			t.Errorf("%q: %d writes", value, off.wrote)
		}
	}
}

func TestConfigIsState(t *testing.T) {
	d, h := newTestDB(t), &heard{}
	d.sink = h
	before := string(encode(t, d.s))
	d.setEvents("AnE")
	txn := d.begin()
	txn.SetConfig("another", "")
	golden(t, "writeset-config.golden", txn.Writes().Bytes())
	d.apply(txn)
	golden(t, "snapshot-config.golden", encode(t, d.s))
	if string(encode(t, d.s)) == before {
		t.Error("the state does not show the parameter")
	}
	s, err := Restore(strings.NewReader(string(encode(t, d.s))))
	if err != nil {
		t.Fatal(err)
	}
	d.s = s
	if v, ok := d.s.Parameters().Get(ParamEvents); v != "AnE" || !ok {
		t.Errorf("restored %q, %v", v, ok)
	}
	if v, ok := d.s.Parameters().Get("another"); v != "" || !ok {
		t.Errorf("restored %q, %v", v, ok)
	}
	if _, ok := d.begin().Config("third"); ok {
		t.Error("a parameter that was never set is there")
	}
	d.do("SET", "k", "v")
	if got, want := h.take(), "__keyevent@0__:new k, __keyevent@0__:set k"; got != want {
		t.Errorf("published %q after a restore, want %q", got, want)
	}
}

func TestConfigRollsBack(t *testing.T) {
	d := newTestDB(t)
	d.setEvents("E$")
	txn := d.begin()
	sp := txn.Savepoint()
	txn.SetConfig(ParamEvents, "")
	txn.SetConfig("another", "x")
	d.run(txn, "SET", "k", "v")
	if n := txn.Writes().Len(); n != 3 {
		t.Errorf("%d writes while notifications are off", n)
	}
	txn.Rollback(sp)
	d.run(txn, "SET", "k", "v")
	if n := txn.Writes().Len(); n != 2 {
		t.Errorf("%d writes after the rollback", n)
	}
	if v, _ := txn.Config(ParamEvents); v != "E$" {
		t.Errorf("after the rollback: %q", v)
	}
	if _, ok := txn.Config("another"); ok {
		t.Error("the other parameter is still there")
	}
}

func TestSnapshotKeepsItsConfig(t *testing.T) {
	d := newTestDB(t)
	d.setEvents("KA")
	snap := d.s.Snapshot()
	d.setEvents("EA")
	if v := snap.config.values[ParamEvents]; v != "KA" {
		t.Errorf("the snapshot has %q now", v)
	}
}

func TestCanonicalEvents(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{"", ""}, {"KEA", "AKE"}, {"AnK", "AK"}, {"Emn", "nEm"}, {"xg", "gx"}, {"KKKg", "gK"},
		{"g$lshzxetd", "A"}, {"ng$lshzxetdm", "Am"}, {"td", "td"},
	} {
		if got, ok := CanonicalEvents(c.value); got != c.want || !ok {
			t.Errorf("%q: got %q, %v, want %q", c.value, got, ok, c.want)
		}
	}
	for _, value := range []string{"Q", "KEAq", " ", "a"} {
		if _, ok := CanonicalEvents(value); ok {
			t.Errorf("%q passes", value)
		}
	}
}

// TestEventsByClass: if a letter enables one class of events, only the commands of that class publish events.
func TestEventsByClass(t *testing.T) {
	calls := []struct{ class, call string }{
		{"$", "SET k v"}, {"g", "DEL k"}, {"h", "HSET h f v"}, {"l", "RPUSH l v"}, {"s", "SADD s v"}, {"z", "ZADD z 1 v"}, {"m", "GET nosuch"},
	}
	for _, on := range calls {
		d, h := newTestDB(t), &heard{}
		d.sink = h
		d.setEvents("K" + on.class)
		var spoke []string
		for _, c := range calls {
			d.do(words(c.call)...)
			if h.take() != "" {
				spoke = append(spoke, c.class)
			}
		}
		if !slices.Equal(spoke, []string{on.class}) {
			t.Errorf("with K%s, %q spoke", on.class, spoke)
		}
	}
}
