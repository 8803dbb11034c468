package store

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand"
	"slices"
	"testing"
)

// TestIndexIsAMap compares an index, and frozen copies of it, with maps. The test chooses
// the hashes: spread out, close together, and the same for many keys.
func TestIndexIsAMap(t *testing.T) {
	for name, hash := range map[string]func(uint64) uint64{
		"spread":   func(h uint64) uint64 { return h },
		"low bits": func(h uint64) uint64 { return h & 0x3ff },
		"one bit":  func(h uint64) uint64 { return h & 1 << 20 },
		"ends":     func(h uint64) uint64 { return -(h & 1) & hashMask },
		"clusters": func(h uint64) uint64 { return h & 0xf0000000000f },
		"the same": func(uint64) uint64 { return 42 },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range int64(20) {
				playIndex(t, rand.New(rand.NewSource(seed)), func(key string) uint64 { return hash(hashOf(key)) })
			}
		})
	}
}

type indexModel struct {
	index
	want map[string]slot
}

func playIndex(t *testing.T, r *rand.Rand, hash func(string) uint64) {
	t.Helper()
	live := indexModel{newIndex(), map[string]slot{}}
	var frozen []indexModel
	keys := 1 + r.Intn(2000)
	for range 4 {
		for grow, n := r.Intn(2) == 0, r.Intn(3*keys); n > 0; n-- {
			key := fmt.Sprint("key:", r.Intn(keys))
			s := slot{hash(key), &Entry{key: key}}
			if live.get(s.hash, key) != live.want[key].Entry {
				t.Fatalf("another entry of %s is found", key)
			}
			if set := r.Intn(4) != 0; set == grow {
				if old := live.set(s); old != live.want[key].Entry {
					t.Fatalf("another entry of %s is replaced", key)
				}
				live.want[key] = s
			} else {
				live.remove(s.hash, key)
				delete(live.want, key)
			}
		}
		live.check(t, r)
		if r.Intn(2) == 0 {
			frozen = append(frozen, indexModel{live.freeze(), maps.Clone(live.want)})
		}
	}
	for _, f := range frozen {
		f.check(t, r)
	}
	for _, s := range live.want {
		live.remove(s.hash, s.key)
	}
	if root := live.root; live.size != 0 || len(root.kids) != 1 || root.kids[0].kids != nil || cap(root.kids[0].slots) > 2*slotStep {
		t.Fatalf("an index without keys keeps memory: %d kids of depth %d", len(root.kids), root.depth)
	}
}

// check compares walks in order with the map: one over all keys, and two from a random position on.
func (m *indexModel) check(t *testing.T, r *rand.Rand) {
	t.Helper()
	want := slices.SortedFunc(maps.Values(m.want), compareSlots)
	if m.size != len(want) {
		t.Fatalf("size %d of %d keys", m.size, len(want))
	}
	from := uint64(0)
	for range 3 {
		var got []slot
		m.ascend(from, func(s slot) bool { got = append(got, s); return true })
		at := slices.IndexFunc(want, func(s slot) bool { return s.hash >= from })
		if at < 0 {
			at = len(want)
		}
		if !slices.Equal(got, want[at:]) {
			t.Fatalf("from %x: %d keys in order, want %d, or others", from, len(got), len(want)-at)
		}
		if stop := len(got) / 2; stop > 0 {
			m.ascend(from, func(slot) bool { stop--; return stop > 0 })
			if stop != 0 {
				t.Fatal("the walk goes on though it was told not to")
			}
		}
		m.ascend(from|1<<hashBits, func(slot) bool { t.Fatal("a key beyond all hashes"); return false })
		from = hashOf(fmt.Sprint(r.Int()))
		if len(want) > 0 && r.Intn(2) == 0 {
			from = want[r.Intn(len(want))].hash + uint64(r.Intn(2))
		}
	}
}

// TestIndexIsFlat: evenly spread keys are found in few steps and take little memory.
func TestIndexIsFlat(t *testing.T) {
	x := newIndex()
	const keys = 200_000
	for i := range keys {
		e := &Entry{key: fmt.Sprint("lock:", i)}
		x.set(slot{e.hash(), e})
	}
	deepest, places, room := 0, 0, 0
	var walk func(n *node, depth int)
	walk = func(n *node, depth int) {
		deepest = max(deepest, depth)
		places += len(n.kids)
		room += cap(n.slots)
		for i, kid := range n.kids {
			if i == 0 || kid != n.kids[i-1] {
				walk(kid, depth+1)
			}
		}
	}
	walk(x.root, 0)
	if deepest > 3 {
		t.Errorf("a key is %d steps away", deepest)
	}
	if room > keys*3/2 || places > keys/8 {
		t.Errorf("%d slots and %d places for %d keys", room, places, keys)
	}
}

// TestNamesOfOnePositionCannotBeChosen: hashOf gives 1024 names different positions, although all have the same FNV-1a hash.
func TestNamesOfOnePositionCannotBeChosen(t *testing.T) {
	blocks := [][2]string{
		{"4045766f2a6f60fa1471", "a854532628b72a437f6a"},
		{"e13cab313e7b06c729a5", "391d560a302310c840a0"},
		{"bbe489bc5971889c6b13", "d39792c7e9116eb90e16"},
		{"90e30325142a7e01a637", "b8d004e82edc300a4d38"},
		{"8d38e62711855d25dfdd", "f5199b3e0569552864a2"},
		{"b382400830ba6109bb8c", "eb93490f029c35029e89"},
		{"c40f01055e38629ae0b8", "fc2e080aac5a28bb5fbf"},
		{"df5e1b7f699a76db851a", "f77de416f5a40c7a6e11"},
		{"f883cc8531d32c7bb5a2", "00b0cf8a21730a1a9ea9"},
		{"6907778968830cb96b7b", "4116128206637a928e7e"},
	}
	alike, positions := map[uint64]bool{}, map[uint64]bool{}
	for n := range 1 << len(blocks) {
		name := ""
		for i, pair := range blocks {
			block, err := hex.DecodeString(pair[n>>i&1])
			if err != nil {
				t.Fatal(err)
			}
			name += string(block)
		}
		h := fnv.New64a()
		h.Write([]byte(name))
		alike[h.Sum64()], positions[hashOf(name)] = true, true
	}
	if len(alike) != 1 || len(positions) != 1<<len(blocks) {
		t.Errorf("%d hashes of FNV-1a, %d positions", len(alike), len(positions))
	}
}
