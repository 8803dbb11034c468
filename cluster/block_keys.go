package cluster

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
)

// A client of very many keys would take long to put into as many queues. So it has an index of its keys instead, in which the
// leader looks for each key that becomes ready.

// A blocked client with manyKeys keys or more has an index of its keys, and at first stands in none of the keys' queues.
const manyKeys = 4096

// keyIndex finds keys among many. It has copies of the keys: when a command has been cancelled, its arguments belong to the
// client again.
type keyIndex struct {
	names string
	ends  []uint32 // where each key ends in names
	slots []slot   // their number is a power of two, and at least twice the number of keys
}

// slot is a slot of a hash table with linear probing: a key's hash chooses the first slot to try.
type slot struct {
	hash uint32 // upper half of the hash of the key; the lower half chooses the slot
	key  uint32 // 1 plus the index of the key in ends; 0: the slot is free
}

var keySeed = maphash.MakeSeed()

// indexOf returns an index of the keys of a blocking command; nil if it has fewer than manyKeys.
func indexOf(c *call.Call) *keyIndex {
	if len(c.Args) <= manyKeys {
		return nil
	}
	keys, _ := c.Cmd.KeysOf(c.Args)
	return newKeyIndex(keys)
}

// newKeyIndex returns an index of keys; nil if they are fewer than manyKeys. A key that occurs twice gets one slot.
func newKeyIndex(keys [][]byte) *keyIndex {
	if len(keys) < manyKeys {
		return nil
	}
	size, slots := 0, 1
	for _, key := range keys {
		size += len(key)
	}
	for slots < 2*len(keys) {
		slots *= 2
	}
	names := make([]byte, 0, size)
	x := &keyIndex{ends: make([]uint32, 0, len(keys)), slots: make([]slot, slots)}
	for _, key := range keys {
		names = append(names, key...)
		x.ends = append(x.ends, uint32(len(names)))
	}
	x.names = string(names)
	for i := range keys {
		key := x.at(i)
		hash := hashOf(key)
		if s, there := x.find(key, hash); !there {
			*s = slot{uint32(hash >> 32), uint32(i) + 1}
		}
	}
	return x
}

func hashOf(key string) uint64 { return maphash.String(keySeed, key) }

// at returns the key whose end is ends[i].
func (x *keyIndex) at(i int) string {
	begin := uint32(0)
	if i > 0 {
		begin = x.ends[i-1]
	}
	return x.names[begin:x.ends[i]]
}

// find returns the slot of a key. If the key is not in the index, find returns the free slot for it.
func (x *keyIndex) find(key string, hash uint64) (s *slot, there bool) {
	mask := uint64(len(x.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s = &x.slots[i]
		if s.key == 0 {
			return s, false
		}
		if s.hash == uint32(hash>>32) && x.at(int(s.key)-1) == key {
			return s, true
		}
	}
}

// addMany inserts a client into ws.many by its order.number: rollback may put back a client from the middle.
func (ws *blockedClients) addMany(w *blockedClient) {
	i, _ := ws.findMany(w.order.number)
	ws.many = slices.Insert(ws.many, i, w)
}

// findMany returns the index in ws.many of the client with this order.number, or else of the first client with a higher one.
func (ws *blockedClients) findMany(number uint64) (i int, there bool) {
	return slices.BinarySearchFunc(ws.many, number, func(w *blockedClient, number uint64) int { return cmp.Compare(w.order.number, number) })
}

// waitedFor reports whether a client waits for a key.
func (ws *blockedClients) waitedFor(k waitKey) bool {
	if ws.queues[k] != nil {
		return true
	}
	for range ws.waitForMany(k) {
		return true
	}
	return false
}

// waitForMany yields the clients of ws.many that wait for k. With each client it yields the number of k in the client's index
// (slot.key).
func (ws *blockedClients) waitForMany(k waitKey) iter.Seq2[*blockedClient, uint32] {
	return func(yield func(*blockedClient, uint32) bool) {
		if len(ws.many) == 0 {
			return
		}
		hash := hashOf(k.key)
		for _, w := range ws.many {
			if w.wait.DB != k.db {
				continue
			}
			if s, there := w.keys.find(k.key, hash); there && !yield(w, s.key) {
				return
			}
		}
	}
}

// place puts each client of ws.many that waits for k into the queue of k, once. It is called when k is ready.
func (ws *blockedClients) place(k waitKey) {
	for w, number := range ws.waitForMany(k) {
		if w.found[number] != nil {
			continue
		}
		if w.found == nil {
			w.found = map[uint32]*place{}
		}
		p := &place{w: w, queue: ws.queue(k), order: w.order}
		w.found[number] = p
		p.queue.push(p)
	}
}
