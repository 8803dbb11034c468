package bridge

import (
	"hash/maphash"
	"slices"
	"sync"
)

// keyLocks make commands on one key run one after the other: otherwise the old Redis and lockstep could run them in different orders.
type keyLocks struct{ parts [1024]sync.Mutex }

var keySeed = maphash.MakeSeed()

// lock waits for the turn of some keys of a database. The caller must call the result.
func (l *keyLocks) lock(db int, keys []string) (unlock func()) {
	places := make([]int, 0, len(keys))
	for _, key := range keys {
		places = append(places, int((maphash.String(keySeed, key)+uint64(db))%uint64(len(l.parts))))
	}
	slices.Sort(places)
	places = slices.Compact(places)
	for _, at := range places {
		l.parts[at].Lock()
	}
	return func() {
		for _, at := range places {
			l.parts[at].Unlock()
		}
	}
}
