package store

import "slices"

// In a large database, each step of a lookup waits for main memory. Before a Txn runs several commands, it makes their lookups side by
// side, and so does a Store before it applies several writes. The processor waits for all of them at once, and later finds the nodes in
// its cache.

const (
	// aheadLimit is the largest number of keys that a Txn reads ahead.
	aheadLimit = 32
	// aheadLength is the longest key to read ahead, in bytes. To hash a longer one twice costs more than it saves.
	aheadLength = 256
	// aheadBytes is how many bytes of writes a Store looks through for keys.
	aheadBytes = 16 << 10
	// aheadSize is the smallest number of keys with which a database may exceed the processor's
	// cache.
	aheadSize = 1 << 13
)

// Ahead collects the keys that commands are about to look up.
type Ahead struct {
	keys [aheadLimit]aheadKey
	n    int
}

// aheadKey is a key and the state of its lookup.
type aheadKey struct {
	db   int
	key  string
	hash uint64
	path uint64 // the part of the key's hash that leads on from the node in the field at
	at   *node  // the node that the lookup has reached
}

// Room reports whether there is room for another key.
func (a *Ahead) Room() bool { return a.n < len(a.keys) }

// Add adds the first key of a command, if there is room and the key is not longer than aheadLength.
func (a *Ahead) Add(cmd *Command, args [][]byte, db int) {
	if !a.Room() || len(cmd.Keys) == 0 {
		return
	}
	at := cmd.Keys[0].Begin
	if n := cmd.Keys[0].NumKeys; n > 0 {
		at = n + 1
	}
	if at > 0 && at < len(args) && len(args[at]) <= aheadLength {
		a.keys[a.n] = aheadKey{db: db, key: bytesToString(args[at])}
		a.n++
	}
}

// ReadAhead looks up the collected keys of large databases side by side, and empties a. The result is how many exist.
func (t *Txn) ReadAhead(a *Ahead) (found int) {
	return a.look(func(db int) *keyspace { return t.views[db].base })
}

// readAhead looks up the first keys in writes, which begin in the database db. The result is how many bytes of writes it has left over.
func (s *Store) readAhead(writes []byte, db int) (left int) {
	d, a := newDecoder(writes), &s.ahead
	add := func(key string) {
		if a.Room() && len(key) <= aheadLength && (a.n == 0 || a.keys[a.n-1].key != key) {
			a.keys[a.n] = aheadKey{db: db, key: key}
			a.n++
		}
	}
	for left = len(d.B); a.Room() && left > max(0, len(writes)-aheadBytes) && !d.Bad; left = len(d.B) {
		switch o := d.op(); {
		case o == opDB:
			db = d.db()
		case o.known():
			d.eachKey(shapes[o], add)
		default:
			d.Bad = true
		}
	}
	if a.n > 1 {
		a.look(func(db int) *keyspace { return s.dbs[db] })
	}
	clear(a.keys[:a.n])
	a.n = 0
	return left
}

// anyLarge reports whether a lookup in any database may wait for main memory.
func (s *Store) anyLarge() bool {
	return slices.ContainsFunc(s.dbs[:], func(ks *keyspace) bool { return ks.keys.size >= aheadSize })
}

// look does the work of ReadAhead; base returns a database.
func (a *Ahead) look(base func(db int) *keyspace) (found int) {
	n := 0
	for _, k := range a.keys[:a.n] {
		if ks := base(k.db); ks != nil && ks.keys.size >= aheadSize {
			k.at, k.hash = ks.keys.root, ks.hashes.of(k.key)
			k.path = path(k.hash)
			a.keys[n] = k
			n++
		}
	}
	for deeper := n > 0; deeper; {
		deeper = false
		for i := range a.keys[:n] {
			if k := &a.keys[i]; k.at.kids != nil {
				k.at = k.at.kids[k.at.place(k.path)]
				k.path <<= k.at.bits
				deeper = true
			}
		}
	}
	for i := range a.keys[:n] {
		k := &a.keys[i]
		if _, is := k.at.find(k.path, k.hash, k.key); is {
			found++
		}
	}
	clear(a.keys[:a.n])
	a.n = 0
	return found
}
