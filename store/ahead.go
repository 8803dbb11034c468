package store

// A lookup follows pointers, each of which has to be read before the next one is known:
// when there are many keys, each of these reads waits for the memory, and that is most of
// what a short command costs. So the lookups of several commands are made side by side
// before the commands are run one after the other: then the processor waits for all of
// them at once, and what they have read is in its cache.

const (
	// aheadLimit is for how many keys at most a Txn reads ahead.
	aheadLimit = 32
	// aheadLength is how long such a key is at most: longer ones take longer to be hashed
	// than to be found, and what a script without keys has in their place may be any length.
	aheadLength = 256
	// aheadSize is how many keys a database has that may not fit into a processor's cache.
	aheadSize = 1 << 13
)

// Ahead collects the keys that commands are about to look up.
type Ahead struct {
	keys [aheadLimit]aheadKey
	n    int
}

// aheadKey is a key, and how far its lookup has come.
type aheadKey struct {
	db   int
	key  string
	hash uint64
	path uint64 // what is left of it …
	at   *node  // … at this node
}

// Room reports whether there is room for another key.
func (a *Ahead) Room() bool { return a.n < len(a.keys) }

// Add adds the first key of a command, if there is room.
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

// ReadAhead reads what looking the keys up will read and forgets them. It returns how many
// of them large databases have.
func (t *Txn) ReadAhead(a *Ahead) (found int) {
	n := 0
	for _, k := range a.keys[:a.n] {
		if ks := t.views[k.db].base; ks != nil && ks.keys.size >= aheadSize {
			k.at, k.hash = ks.keys.root, hashOf(k.key)
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
