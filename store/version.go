package store

// Version returns what WATCH compares: the write set that last changed a key,
// or put another in its place by SWAPDB; 0 if there is no such key. It grows
// with every change, the transaction's own included.
func (t *Txn) Version(db int, key []byte) uint64 {
	e := t.Lookup(db, key)
	switch {
	case e == nil:
		return 0
	case t.swappedDBs>>db&1 != 0:
		return t.seq
	}
	return max(e.changed, t.s.swapped[db])
}

// Sequence returns the sequence number that the write set will get.
func (t *Txn) Sequence() uint64 { return t.seq }
