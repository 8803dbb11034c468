package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// room returns for how many entries a map has room.
func (r *roomy[K, V]) room() int { return max(r.most, len(r.m)) }

func (t *table[V]) room() int {
	n := t.whole.room()
	for i := range t.parts {
		n += t.parts[i].room()
	}
	return n
}

// roomFor is the room that a table of n names may have.
func roomFor(n int) int { return sparse*n + tableParts*fewEntries }

// TestTableIsAMap compares a table with a map, while it is split and joined.
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
		if grows == (tab.parts == nil) {
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
		tab.drop(name) // while it is gone through
	}
	if tab.len() != 0 || len(maps.Collect(tab.all())) != 0 {
		t.Errorf("%d names are left", tab.len())
	}
}

// TestTableGivesRoomBack at any size.
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
