package store

// Replaced tells for which names of a write set a new key may have taken the place of an earlier one. A lease that the write set
// has granted for the earlier key is then over, although a key of that name exists. Replaced need not tell of a name whose key was
// removed and not replaced.
type Replaced struct {
	names     map[lapsedKey]int // where a removed name got a key again, as an index in the write set
	databases [Databases]int    // where a database was emptied or swapped last; 0: it was not
}

// Since reports whether a name may have got another key behind a position of the write set.
func (r *Replaced) Since(m Mark, db int, key string) bool {
	return r.databases[db] > m.at || r.names[lapsedKey{db, key}] > m.at
}

// Replaced returns what Replaced tells of the writes so far; nil if no name has got another key. The result stays valid after Restart.
func (t *Txn) Replaced() *Replaced {
	if len(t.replaced.names) == 0 && t.replaced.databases == [Databases]int{} {
		return nil
	}
	r := t.replaced
	return &r
}

// noteReplaced records that a name, which this transaction has removed, gets a key again.
func (t *Txn) noteReplaced(db int, key string) {
	names, x := t.replaced.names, lapsedKey{db, key}
	if names == nil {
		names = map[lapsedKey]int{}
		t.replaced.names = names
	}
	before := names[x]
	names[x] = t.ws.Mark().at
	t.undo(func() { names[x] = before })
}

// noteEmptied records that this transaction has emptied or swapped databases.
func (t *Txn) noteEmptied(dbs ...int) {
	before := t.replaced.databases
	for _, db := range dbs {
		t.replaced.databases[db] = t.ws.Mark().at
	}
	t.undo(func() { t.replaced.databases = before })
}
