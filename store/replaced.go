package store

// Replaced records for which names a write set may have given a new key: a lease on an earlier key is then over.
type Replaced struct {
	names     map[lapsedKey]int // position in the write set at which a removed name last got a key again
	databases [Databases]int    // position at which a database was last emptied or swapped; 0: it was not
}

// Since reports whether a name may have got another key behind a position of the write set.
func (r *Replaced) Since(m Mark, db int, key string) bool {
	return r.databases[db] > m.at || r.names[lapsedKey{db, key}] > m.at
}

// Replaced returns the record of the writes so far, or nil if no name may have got another key. The record stays valid after Restart.
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
