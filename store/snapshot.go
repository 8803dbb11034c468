package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"github.com/lockstep-io/lockstep/store/codec"
	"io"
	"math"
	"slices"
)

// Snapshot is the state of a store at one instant. Another goroutine may read it while the store changes.
type Snapshot struct {
	dbs     [Databases]*keyspace
	scripts scriptCache
	config  config
	libs    *librarySet
	expired uint64
	swapped [Databases]uint64
	tokens  tokens

	accounts Accounts
}

// Snapshot returns the current state. Trees and entries are shared; a write copies an entry of an older epoch. Only Entry.seat changes in
// place: a reader of a snapshot must not read Entry.seat or copy a whole Entry.
func (s *Store) Snapshot() *Snapshot {
	s.epoch++
	snap := &Snapshot{expired: s.expired, config: s.config, swapped: s.swapped, tokens: s.tokens, libs: s.libs, accounts: s.Accounts(), scripts: scriptCache{
		bySHA:   s.scripts.bySHA.Copy(),
		evaled:  s.scripts.evaled.Copy(),
		arrival: s.scripts.arrival,
	}}
	for i, ks := range s.dbs {
		snap.dbs[i] = &keyspace{keys: ks.keys.freeze()}
	}
	return snap
}

// The records of a snapshot, each a tag and its fields (int: uvarint; str: uvarint length, then
// bytes). Keys are in iteration order, so equal keyspaces give equal bytes.
//
//	+------+-------------------------------------------------------------+
//	| 'D'  | int db: the database of the keys that follow                |
//	| 'S'  | key head, str value                                         |
//	| 'R'  | as 'S', but the string has formRaw                          |
//	| 'T'  | as 'S', but the string has formText                         |
//	| 'H'  | key head, int compact, int n, n times (str field, str value)|
//	| 'Q'  | key head, int n, n times str value: a list                  |
//	| 'M'  | key head, int compact, int n, n times str member: a set     |
//	| 'Z'  | key head, int compact, int n, n times (str member, int      |
//	|      | score: the bits of a double), in the set's order            |
//	| 'K'  | key head, int mode, int asked, int n, n times (str owner,   |
//	|      | int permits, int holds, int deadline, int told, int delay,  |
//	|      | int most, int token, int leased, int changed): a lock       |
//	| 'A'  | int marks: those of the key before (formMarks)              |
//	| 'L'  | str sha, str body, int pinned, int order: a cached script   |
//	| 'W'  | int db, int sequence number of its latest SWAPDB            |
//	| 'G'  | int token: the last one that was given; none of version     |
//	|      | 0.1.0 counts                                                |
//	| 'X'  | int db, int token of its latest SWAPDB                      |
//	| 'U'  | str name, str rules: a user; rules as in encodeRules        |
//	| 'V'  | int version of the users                                    |
//	| 'F'  | str library: a function library, as in operation 29         |
//	| 'C'  | str name, str value: a parameter of the cluster             |
//	| 'E'  | int expired, int script arrivals: the end                   |
//	+------+-------------------------------------------------------------+
//	key head: str key, int deadline, int token, int changed, int leased
const (
	recDB        = 'D'
	recString    = 'S'
	recRaw       = 'R'
	recText      = 'T'
	recHash      = 'H'
	recList      = 'Q'
	recSet       = 'M'
	recSortedSet = 'Z'
	recLock      = 'K'
	recMarks     = 'A'
	recScript    = 'L'
	recSwapped   = 'W'
	recTokens    = 'G'
	recSwapToken = 'X'
	recUser      = 'U'
	recUsers     = 'V'
	recLibrary   = 'F'
	recConfig    = 'C'
	recEnd       = 'E'
)

// snapWriter writes fields. The bufio.Writer keeps the first error until Encode flushes it.
type snapWriter struct {
	*bufio.Writer
	tmp [binary.MaxVarintLen64]byte
}

func (w *snapWriter) int(n uint64) { w.Write(binary.AppendUvarint(w.tmp[:0], n)) }

func (w *snapWriter) str(s string) {
	w.int(uint64(len(s)))
	w.WriteString(s)
}

// Accounts returns the users of the state.
func (sn *Snapshot) Accounts() Accounts { return sn.accounts }

// Newer reports whether version 0.1.0 could not read the snapshot, or would treat it in another way. It may look at all keys.
func (sn *Snapshot) Newer() bool {
	if sn.tokens.counted() || slices.ContainsFunc(sn.config.names(), FormParam) {
		return true
	}
	newer := false
	for _, ks := range sn.dbs {
		ks.keys.ascend(0, func(s slot) bool {
			newer = newer || s.stringForm() == formText
			return !newer
		})
	}
	return newer
}

// Encode writes the snapshot.
func (sn *Snapshot) Encode(out io.Writer) error {
	w := &snapWriter{Writer: bufio.NewWriterSize(out, 1<<16)}
	for db, ks := range sn.dbs {
		if ks.keys.size == 0 {
			continue
		}
		w.WriteByte(recDB)
		w.int(uint64(db))
		ks.keys.ascend(0, func(s slot) bool {
			w.entry(s.Entry)
			return true
		})
	}
	sn.scripts.bySHA.Scan(func(s script) bool {
		w.WriteByte(recScript)
		w.str(s.sha)
		w.str(s.body)
		w.int(uint64(Flag(s.pinned).Int))
		w.int(s.order)
		return true
	})
	for db, seq := range sn.swapped {
		if seq != 0 {
			w.WriteByte(recSwapped)
			w.int(uint64(db))
			w.int(seq)
		}
	}
	w.tokens(&sn.tokens)
	for _, name := range sn.config.names() {
		w.WriteByte(recConfig)
		w.str(name)
		w.str(sn.config.values[name])
	}
	w.accounts(sn.accounts)
	for _, lib := range sn.libs.list() {
		w.WriteByte(recLibrary)
		w.str(bytesToString(appendLibrary(nil, lib)))
	}
	w.WriteByte(recEnd)
	w.int(sn.expired)
	w.int(sn.scripts.arrival)
	return w.Flush()
}

// recordOf maps the type of a key to the tag of its record.
var recordOf = [...]byte{TypeString: recString, TypeHash: recHash, TypeList: recList, TypeSet: recSet, TypeSortedSet: recSortedSet, TypeLock: recLock}

func (w *snapWriter) entry(e *Entry) {
	tag := recordOf[e.typ]
	switch e.stringForm() {
	case formRaw:
		tag = recRaw
	case formText:
		tag = recText
	}
	w.WriteByte(tag)
	w.str(e.key)
	w.int(uint64(e.deadline))
	w.int(e.token)
	w.int(e.changed)
	w.int(e.leased)
	switch v := e.collection().(type) {
	case nil:
		w.str(e.str)
	case *Hash:
		w.head(v)
		v.Each(func(f Field) bool {
			w.str(f.Name)
			w.str(f.Value)
			return true
		})
	case *Deque:
		w.int(uint64(v.Len()))
		v.Each(0, func(value string) bool {
			w.str(value)
			return true
		})
	case *MemberSet:
		w.head(v)
		v.Each(func(name string) bool {
			w.str(name)
			return true
		})
	case *SortedSet:
		w.head(v)
		v.Each(0, func(m Scored) bool {
			w.str(m.Member)
			w.int(math.Float64bits(m.Score))
			return true
		})
	case *Lock:
		w.lock(v)
	}
	if e.form&formMarks != 0 {
		w.WriteByte(recMarks)
		w.int(uint64(e.form & formMarks))
	}
}

// head writes the form of a collection and the number of its elements.
func (w *snapWriter) head(v interface {
	Compact() bool
	Len() int
}) {
	w.int(uint64(Flag(v.Compact()).Int))
	w.int(uint64(v.Len()))
}

// ErrCorruptSnapshot is the error of Restore for bytes that are not a complete snapshot.
var ErrCorruptSnapshot = errors.New("store: corrupt snapshot")

// maxUsersVersion is the highest version of the users that Restore accepts. No store reaches it, and a
// version can still grow from it without an overflow.
const maxUsersVersion = 1 << 62

// maxArrival is the highest scriptCache.arrival that Restore accepts, for the same reasons.
const maxArrival = 1 << 62

// snapReader reads the records of a snapshot.
type snapReader struct {
	*codec.Stream
	older bool   // version 0.1.0 may have written the snapshot
	order uint64 // the highest script.order so far
	token uint64 // the highest token so far
	last  *Entry // the last key
}

// Restore reads a snapshot into a new store. On an error it returns no store: a corrupt snapshot
// must not replace a good state.
func Restore(in io.Reader) (*Store, error) { return restore(&snapReader{Stream: codec.NewStream(in)}) }

// RestoreOlder is Restore for a snapshot that version 0.1.0 can read. Like that version, it ignores the parameters of forms.go.
func RestoreOlder(in io.Reader) (*Store, error) {
	return restore(&snapReader{Stream: codec.NewStream(in), older: true})
}

func restore(r *snapReader) (*Store, error) {
	s := New()
	db := 0
	for {
		tag, err := r.ReadByte()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorruptSnapshot, err)
		}
		switch tag {
		case recDB:
			db = r.database()
		case recString, recRaw, recText, recHash, recList, recSet, recSortedSet, recLock:
			r.key(s, s.dbs[db], tag)
		case recEnd:
			r.end(s)
			if r.Err == nil {
				return s, nil
			}
		default:
			r.other(s, tag)
		}
		if r.Err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorruptSnapshot, r.Err)
		}
	}
}

// end reads the last record.
func (r *snapReader) end(s *Store) {
	s.expired, s.scripts.arrival = r.Uvarint(), r.Uvarint()
	r.checkTokens(s)
	if at := s.scripts.arrival; r.Err == nil && (at < r.order || at > maxArrival) {
		r.Err = fmt.Errorf("%d scripts have arrived, and one has the number %d", at, r.order)
	}
}

// database reads the number of a database.
func (r *snapReader) database() int {
	n := r.Uvarint()
	if n >= Databases {
		r.Err = fmt.Errorf("database %d", n)
		return 0
	}
	return int(n)
}

// other reads a record that is not a key.
func (r *snapReader) other(s *Store, tag byte) {
	switch tag {
	case recScript:
		r.script(s)
	case recSwapped:
		db := r.database()
		if seq := r.Uvarint(); r.Err == nil {
			s.swapped[db], s.newest = seq, max(s.newest, seq)
		}
	case recMarks:
		r.marks()
	case recTokens, recSwapToken:
		r.tokens(s, tag)
	case recConfig:
		if name, value := r.Str(), r.Str(); r.Err == nil && !(r.older && FormParam(name)) {
			s.config = s.config.with(name, value)
		}
	case recUser:
		if a := (&Account{Name: r.Str(), rules: r.Str()}); r.Err == nil {
			s.accounts.set(a, 0)
		}
	case recUsers:
		if s.accounts.version = r.Uvarint(); s.accounts.version > maxUsersVersion {
			r.Err = fmt.Errorf("version %d of the users", s.accounts.version)
		}
		s.accounts.forgotten, s.newest = s.accounts.version, max(s.newest, s.accounts.version)
	case recLibrary:
		d := newDecoder(r.Bytes())
		if lib := d.library(); !d.Bad && len(d.B) == 0 {
			s.libs = s.libs.with(lib)
		} else if r.Err == nil {
			r.Err = errors.New("a function library")
		}
	default:
		r.Err = fmt.Errorf("record %q", tag)
	}
}

// script reads a cached script.
func (r *snapReader) script(s *Store) {
	c := script{sha: r.Str(), body: r.Str(), pinned: r.Uvarint() != 0, order: r.Uvarint()}
	if r.Err != nil {
		return
	}
	if _, twice := s.scripts.bySHA.Set(c); twice {
		r.Err = fmt.Errorf("script %q twice", c.sha)
	}
	s.scripts.count(c, 1)
	r.order = max(r.order, c.order)
	if c.pinned {
		return
	}
	if _, twice := s.scripts.evaled.Set(c); twice {
		r.Err = fmt.Errorf("two scripts with the number %d", c.order)
	}
}

// key reads a key into a database.
func (r *snapReader) key(s *Store, ks *keyspace, tag byte) {
	e := r.entry(tag)
	if r.Err != nil {
		return
	}
	r.last = e
	before := ks.keys.size
	if ks.set(e); ks.keys.size == before {
		r.Err = fmt.Errorf("key %q twice", e.key)
	}
	ks.size += e.size()
	s.newest = max(s.newest, e.changed, e.leased)
	r.token = max(r.token, e.token)
	if l := e.Lock(); l != nil {
		r.holders(s, l)
	}
	if e.deadline != 0 {
		s.leased = max(s.leased, e.leased)
	}
}

func (r *snapReader) entry(tag byte) *Entry {
	key := r.Str()
	e := Entry{key: key, typ: TypeString,
		deadline: int64(r.Uvarint()), token: r.Uvarint(), changed: r.Uvarint(), leased: r.Uvarint()}
	if e.deadline < 0 && r.Err == nil {
		r.Err = fmt.Errorf("key %q has the deadline %d", key, e.deadline)
	}
	var elems collection
	switch tag {
	case recString, recRaw, recText:
		if e.str = r.Str(); len(key)+len(e.str) <= maxShared {
			e.key, e.str = ownPair(key, e.str)
		}
		switch tag {
		case recRaw:
			e.form = formRaw
		case recText:
			e.form = formText
		}
		return &e
	case recHash:
		e.typ, elems = TypeHash, r.hash()
	case recList:
		e.typ, elems = TypeList, r.list()
	case recSet:
		e.typ, elems = TypeSet, r.set()
	case recSortedSet:
		e.typ, elems = TypeSortedSet, r.sortedSet()
	case recLock:
		e.typ, elems = TypeLock, r.lock(e.deadline)
	}
	if r.Err == nil && elems.Len() == 0 {
		r.Err = errors.New("a key without elements")
	}
	return e.holding(elems)
}

// each reads the number of elements and calls fn that many times, unless there is an error. fn must read one element.
func (r *snapReader) each(fn func()) {
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		fn()
	}
}

func (r *snapReader) hash() *Hash {
	h, compact := &Hash{}, r.Uvarint() != 0
	if !compact {
		h.grow()
	}
	f := &finder{}
	r.each(func() { h.set(r.Str(), r.Str(), &anyForm, f) })
	return h
}

func (r *snapReader) list() *Deque {
	l := newList()
	r.each(func() { l.push(false, r.Str()) })
	return l
}

func (r *snapReader) set() *MemberSet {
	s, compact := &MemberSet{}, r.Uvarint() != 0
	if !compact {
		s.grow()
	}
	r.each(func() { s.add(r.Str(), &anyForm) })
	return s
}

func (r *snapReader) sortedSet() *SortedSet {
	z, compact := &SortedSet{}, r.Uvarint() != 0
	if !compact {
		z.grow() // convert the empty set first, because the compact form cannot hold -0
	}
	f := &finder{}
	r.each(func() {
		name, score := r.Str(), math.Float64frombits(r.Uvarint())
		if math.IsNaN(score) {
			r.Err = errors.New("a score that is not a number")
		} else if r.Err == nil {
			z.set(name, score, &anyForm, f)
		}
	})
	return z
}
