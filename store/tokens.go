package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// Tokens. Each key has a token: a number that grows with each owner of the key. So a resource that remembers the highest token that it has
// seen can refuse a former owner of a lock (docs/fencing.md).
//
// A key gets the next token when it comes into being, and when its string value is replaced by another one: a lock that is taken over by
// an overwrite has a new owner. A lease that is renewed, the same value set again, and a hash that gets a further field keep the token.
// SWAPDB gives all keys of both databases a new one.
//
// The tokens of a cluster begin above the Unix time of its birth in µs, and so do those of a restored backup. So they are larger than all
// tokens of an earlier life. They stay exact in Lua and JavaScript up to maxToken, which is in the year 2255.
//
// A cluster with a node of version 0.1.0 does not count tokens. As in that version, a key's number is then that of the write set that
// created it, and no command shows it.

// maxToken is the largest token: the largest integer up to which a double holds each.
const maxToken = 1 << 53

// MaxFirstToken is the largest token above which tokens may begin, so that enough are left even if the time of day is wrong.
const MaxFirstToken = 1 << 52

// tokens are the tokens that have been given.
type tokens struct {
	last  uint64            // 0 if tokens are not counted
	swaps [Databases]uint64 // the token of each database's latest SWAPDB
}

// counted reports whether tokens are counted.
func (t *tokens) counted() bool { return t.last != 0 }

func (t *tokens) next() uint64 {
	t.last++
	return t.last
}

// grant gives an entry the next token (see target.grant).
func (t *tokens) grant(e *Entry, seq uint64, fresh bool) {
	e.form &^= formTold // the new owner has not been asked for the lock
	switch {
	case t.counted():
		e.token = t.next()
	case fresh:
		e.token = seq
	}
}

// swap gives the keys of two databases new tokens.
func (t *tokens) swap(a, b int) {
	if t.counted() {
		t.swaps[a], t.swaps[b] = t.next(), t.next()
	}
}

// above lets the next token be larger than n. It returns false for a number that no leader logs.
func (t *tokens) above(n int64) bool {
	if n < 1 || n > MaxFirstToken {
		return false
	}
	t.last = max(t.last, uint64(n))
	return true
}

// of returns the token of an entry of a database.
func (t *tokens) of(db int, e *Entry) uint64 { return max(e.token, t.swaps[db]) }

// TokensAbove lets the next token be larger than n, or as large as allowed, and larger than all before. From then on tokens are counted.
func (t *Txn) TokensAbove(n int64) {
	n = min(max(n, int64(t.seq), 1), MaxFirstToken) // keys that version 0.1.0 created have smaller numbers than t.seq
	t.ws.begin(opTokens, t.ws.db)
	t.ws.newer = true
	t.ws.int(n)
	t.tokens.above(n)
}

// TokensCounted reports whether tokens are counted.
func (t *Txn) TokensCounted() bool { return t.tokens.counted() }

// LastToken returns the last token that was given, or 0 if tokens are not counted.
func (t *Txn) LastToken() uint64 { return t.tokens.last }

// Token returns the token of a key, or 0 if tokens are not counted. The entry must come from Lookup.
func (t *Txn) Token(db int, e *Entry) uint64 {
	if !t.tokens.counted() {
		return 0
	}
	return t.tokens.of(db, e)
}

func (w *snapWriter) tokens(t *tokens) {
	if !t.counted() {
		return
	}
	w.WriteByte(recTokens)
	w.int(t.last)
	for db, token := range t.swaps {
		if token != 0 {
			w.WriteByte(recSwapToken)
			w.int(uint64(db))
			w.int(token)
		}
	}
}

// tokens reads a record about tokens.
func (r *snapReader) tokens(s *Store, tag byte) {
	if tag == recTokens {
		if s.tokens.last = r.Uvarint(); s.tokens.last == 0 || s.tokens.last > maxToken {
			r.Err = fmt.Errorf("%d tokens", s.tokens.last)
		}
		return
	}
	db := r.database()
	if token := r.Uvarint(); r.Err == nil {
		s.tokens.swaps[db], r.token = token, max(r.token, token)
	}
}

// checkTokens returns an error in r.Err if a key has a token that has not been given yet: it would be given twice.
func (r *snapReader) checkTokens(s *Store) {
	if !s.tokens.counted() {
		s.newest = max(s.newest, r.token)
	} else if r.Err == nil && r.token > s.tokens.last {
		r.Err = fmt.Errorf("the token %d, and %d is the last that was given", r.token, s.tokens.last)
	}
}

// fencedPrefix is the prefix of the keys in which Redisson's fenced lock counts its own tokens.
const fencedPrefix = "redisson_lock_token:"

// RaiseTokens lets tokens begin above n, and the counters of Redisson's fenced locks, too, because a restored state may be older than the
// tokens that its cluster has given. The state has seq write sets, and RaiseTokens counts as a part of the last one.
func (s *Store) RaiseTokens(n int64, seq uint64) error {
	txn := s.Begin(Time{}, seq, Env{})
	txn.TokensAbove(n)
	n = int64(txn.LastToken())
	for db, ks := range s.dbs {
		var low []string
		ks.keys.ascend(0, func(at slot) bool {
			if at.typ == TypeString && strings.HasPrefix(at.key, fencedPrefix) {
				if count, ok := redistext.ParseInt(stringBytes(at.str)); ok && count < n {
					low = append(low, at.key)
				}
			}
			return true
		})
		for _, key := range low {
			txn.KeepString(db, stringBytes(key), strconv.FormatInt(n, 10))
		}
	}
	return s.Apply(txn.Writes().Bytes(), seq, nil)
}
