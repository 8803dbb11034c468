package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// room returns the number of entries for which a map has room.
func (r *roomy[K, V]) room() int { return max(r.most, len(r.m)) }

func (t *table[V]) room() int {
	n := 0
	for i := range t.parts {
		n += t.parts[i].room()
	}
	return n
}

// roomFor returns the largest room that a table of n names may have.
func roomFor(n int) int { return sparse*n + tableParts*fewEntries }

// TestTableIsAMap compares a table with a Go map, while the table is split into parts and joined again.
func TestTableIsAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var tab table[int]
	var mu sync.RWMutex
	want := map[string]int{}
	forms := 0
	for round := range 8 {
		grows := round%2 == 0
		for i := range 12_000 {
			name := fmt.Sprint(random.IntN(6000))
			if random.IntN(20) < 17 == grows {
				tab.put(name, i)
				want[name] = i
			} else {
				tab.drop(name)
				delete(want, name)
			}
			value, is := tab.get(name)
			again, also := tab.getBytes([]byte(name))
			if w, there := want[name]; value != w || is != there || again != w || also != there || tab.len() != len(want) {
				t.Fatalf("%s is %d %v and %d %v, want %d %v; %d and %d names", name, value, is, again, also, w, there, tab.len(), len(want))
			}
		}
		for !grows && tab.len() > fewInParts/2 {
			for name := range tab.all() {
				tab.drop(name)
				delete(want, name)
				break
			}
		}
		if grows == (len(tab.parts) == 1) {
			t.Errorf("with %d names the table is in %d parts", tab.len(), len(tab.parts))
		}
		if got := maps.Collect(tab.all()); !maps.Equal(got, want) {
			t.Fatalf("round %d: the table has %d names, want %d", round, len(got), len(want))
		}
		names := namesOfTable(&mu, &tab)
		if slices.Sort(names); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("round %d: %d names, want %d", round, len(names), len(want))
		}
		forms = tab.form
	}
	if forms != 8 {
		t.Errorf("the table was split and joined %d times", forms)
	}
	for name := range tab.all() {
		tab.drop(name) // while the loop iterates over the table
	}
	if tab.len() != 0 || len(maps.Collect(tab.all())) != 0 {
		t.Errorf("%d names are left", tab.len())
	}
}

// TestTableGivesRoomBack: a table or a roomy map of any size shrinks when its entries are dropped.
func TestTableGivesRoomBack(t *testing.T) {
	var tab table[int]
	const most = 100_000
	for i := range most {
		tab.put(fmt.Sprint(i), i)
	}
	for i := range most {
		if tab.drop(fmt.Sprint(i)); tab.room() > roomFor(tab.len()) {
			t.Fatalf("with %d names there is room for %d", tab.len(), tab.room())
		}
	}
	if tab.room() > fewEntries {
		t.Errorf("an empty table has room for %d", tab.room())
	}
	var one roomy[int, int]
	for i := range most {
		one.put(i, i)
	}
	for i := range most {
		if one.drop(i); one.room() > sparse*len(one.m)+sparse+fewEntries {
			t.Fatalf("with %d entries there is room for %d", len(one.m), one.room())
		}
	}
}

// TestNobodyLeavesRoomBehind: a shared table is only as large as its present content needs, however many entries a client has had in
// it.
func TestNobodyLeavesRoomBehind(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.params.clientLimit.Store(0)
	const many = 20_000
	check := func(what string, n, room int) {
		t.Helper()
		if room > roomFor(n) {
			t.Errorf("%s: %d are left, and there is room for %d", what, n, room)
		}
	}
	tracked := ts.hub.tracker
	s, other := ts.deaf(t, &tracking{}), ts.deaf(t, &tracking{})
	tracked.remember(other, [][]byte{[]byte("k")}, false)
	for _, key := range numbered(many, "%d") {
		tracked.remember(s, [][]byte{[]byte(key)}, false)
	}
	for _, key := range numbered(many, "%d") {
		tracked.Touch(key, someone)
	}
	check("keys that were changed", 1, tracked.keys.room())
	for _, key := range numbered(many, "%d") {
		tracked.remember(s, [][]byte{[]byte(key)}, false)
	}
	tracked.disable(s)
	tracked.disable(other)
	check("keys that nobody tracks", 0, tracked.keys.room())

	s = ts.deaf(t, &tracking{bcast: true, prefixes: []string{"p"}})
	for _, kind := range []subKind{subChannel, subPattern, subShard} {
		ts.hub.subscribe(other, kind, "one")
		for _, how := range []string{"one by one", "at once"} {
			for _, name := range numbered(many, "%d") {
				ts.hub.subscribe(s, kind, name)
			}
			if how == "at once" {
				ts.hub.drop([]*session{s})
			} else {
				for _, name := range numbered(many, "%d") {
					ts.hub.unsubscribe(s, kind, name)
				}
			}
			check(how+": "+subWords[kind].subscribe, 1, ts.hub.byKind(kind).room())
			check(how+": "+subWords[kind].subscribe+" of a client", 0, s.subs[kind].room())
		}
	}

	var crowd []*session
	for range 4000 {
		s := &session{srv: ts.Server, id: ts.lastID.Add(1), out: s.out}
		crowd = append(crowd, s)
		ts.hub.subscribe(s, subChannel, "one")
		ts.monitors.add(s)
		tracked.enable(s, &tracking{bcast: true, prefixes: []string{"p"}})
	}
	for _, s := range crowd {
		ts.hub.unsubscribe(s, subChannel, "one")
		ts.monitors.remove(s)
		tracked.disable(s)
	}
	subs, _ := ts.hub.channels.get("one")
	for what, room := range map[string]int{
		"subscribers": subs.room(), "monitors": ts.monitors.sessions.room(), "clients that track": tracked.sessions.room(),
		"listeners to a prefix": tracked.prefixes.children[0].sessions.room(),
	} {
		if room > fewEntries+sparse {
			t.Errorf("%s: there is room for %d", what, room)
		}
	}
}

// counter counts how often it is locked.
type counter struct{ n int }

func (c *counter) Lock()   { c.n++ }
func (c *counter) Unlock() {}

// TestLocksAreHeldForFewNames: work on many names of a client releases the lock again and again, because the state machine waits for it.
func TestLocksAreHeldForFewNames(t *testing.T) {
	var c counter
	done := 0
	inSteps(&c, numbered(1000, "%d"), func(some []string) { done += len(some) })
	if done != 1000 || c.n < 10 {
		t.Errorf("%d of 1000 were done under %d locks", done, c.n)
	}
	if inSteps(&c, nil, func([]string) { done++ }); done != 1001 {
		t.Error("a call that reads no key is not held back")
	}
	ts := newTestServer(t, nil)
	s := ts.subscriberTo(1000, "x")
	ts.hub.dropSome([]*session{s})
	if n := s.subs[subPattern].len(); n != 1000-dropAtOnce || dropAtOnce > 256 {
		t.Errorf("at once %d of 1000 subscriptions were ended", 1000-n)
	}
}
