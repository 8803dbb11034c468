package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"github.com/lockstep-io/lockstep/store/codec"
)

// PublishKind is a name space of channels.
type PublishKind uint8

const (
	// Channel is for PUBLISH and SUBSCRIBE.
	Channel PublishKind = iota
	// Shard is for SPUBLISH and SSUBSCRIBE.
	Shard
	// Note is not for clients: it is a message from the leader to the node that the channel names.
	Note PublishKind = 16
)

// op is the code of a primitive write.
type op byte

// The primitive writes. A code is never reused: old logs must stay readable.
//
//	+----+------------------------------------------------------------+
//	| op | arguments (int: uvarint; str: uvarint length, then bytes)   |
//	+----+------------------------------------------------------------+
//	|  1 | int db: the database of the writes that follow; 0 at first  |
//	|  2 | str key, str value, int deadline: a string replaces the key |
//	|  3 | str key: delete                                             |
//	|  4 | str key: delete because its deadline has passed             |
//	|  5 | str key, int deadline: set the deadline; 0 removes it       |
//	|  6 | str key, str field, str value: set a hash field             |
//	|  7 | str key, str field: delete a hash field                     |
//	|  8 | int kind, str channel, str message: publish                 |
//	|  9 | empty the database                                          |
//	| 10 | int a, int b: swap two databases                            |
//	| 11 | int db, str key, str new: move the key with its deadline to |
//	|    | a database and name; it replaces the key of that name       |
//	| 12 | as 11, but copy                                             |
//	| 13 | str sha, str body, int pinned: cache a script               |
//	| 14 | forget all scripts                                          |
//	| 15 | str key, int offset, str bytes: overwrite part of a string  |
//	| 16 | str key, str value: push onto the head of a list            |
//	| 17 | str key, str value: push onto the tail of a list            |
//	| 18 | str key, int index, str value: replace an element of a list |
//	| 19 | str key, int index, str value: insert into a list so that   |
//	|    | the value has this index                                    |
//	| 20 | str key, int index, int n: remove n elements of a list      |
//	| 21 | str key, str member: add to a set                           |
//	| 22 | str key, str member: remove from a set                      |
//	| 23 | str key, str member, int score: set the score of a member   |
//	|    | of a sorted set to the IEEE 754 double with these bits      |
//	| 24 | str key, str member: remove from a sorted set               |
//	| 25 | as 23, but give the set its large form first                |
//	| 26 | str name, str value: set a parameter of the cluster;        |
//	|    | those in forms.go only in version 2 of an entry: in         |
//	|    | version 1 they have no effect                               |
//	| 27 | str user, str rules: set a user; rules as in encodeRules    |
//	| 28 | str user: delete a user                                     |
//	| 29 | str name, str code, int n, n times (str name, int           |
//	|    | described, str description, int flags): a function library  |
//	|    | and its functions; it replaces the library of this name.    |
//	|    | described is 1 if a description was given, else 0           |
//	| 30 | str name: delete a function library                         |
//	| 31 | delete all function libraries                               |
//	| 32 | int origin: the origin of the writes that follow; 0 at      |
//	|    | first (see SetOrigin)                                       |
//	| 33 | str key, str value: a string replaces the value of the key, |
//	|    | whose deadline stays; since version 2 of an entry           |
//	| 34 | str key, int form: set the form (strForm) of a string that  |
//	|    | OBJECT ENCODING shows; since version 2 of an entry          |
//	| 35 | int token: the next tokens are larger, and from now on each |
//	|    | is given once (see tokens.go); since version 2 of an entry  |
//	| 36 | str key, str owner, int mode, int permits, int holds, int   |
//	|    | deadline, int told, int delay, int most, int leased: an     |
//	|    | owner holds a lock (see setHolder); since version 2         |
//	| 37 | str key, str owner: remove a holder of a lock; since        |
//	|    | version 2 of an entry                                       |
//	| 38 | str key, int token: the owner of a lock has been asked to   |
//	|    | release it (see tellHolders); since version 2 of an entry   |
//	| 39 | as 2, but the string is a lock; since version 2 of an entry |
//	| 40 | str key, int marks: add marks to the key (formMarks); since |
//	|    | version 2 of an entry                                       |
//	| 41 | as 37, but because the holder's time is over; since         |
//	|    | version 2 of an entry                                       |
//	| 42 | int client: the client that takes the locks which follow; 0 |
//	|    | at first (see SetClient); since version 2 of an entry       |
//	+----+------------------------------------------------------------+
const (
	opDB op = iota + 1
	opSet
	opDelete
	opExpire
	opDeadline
	opHashSet
	opHashDelete
	opPublish
	opFlush
	opSwap
	opMove
	opCopy
	opScriptLoad
	opScriptFlush
	opPatch
	opPushHead
	opPushTail
	opListSet
	opListInsert
	opListRemove
	opSetAdd
	opSetRemove
	opScoreSet
	opScoreRemove
	opScoreSetLarge
	opConfig
	opUserSet
	opUserDelete

	opOrigin op = 32
	opKeep   op = 33
	opForm   op = 34
	opTokens op = 35
	opHold   op = 36
	opDrop   op = 37
	opTell   op = 38
	opLock   op = 39
	opMark   op = 40
	opLapse  op = 41
	opTaker  op = 42
)

// maxPatch is the largest offset of opPatch.
const maxPatch = 512 << 20

// WriteSet is a list of primitive writes in encoded form, in order.
type WriteSet struct {
	buf []byte
	db  int // database of the last write
	n   int

	origin uint64 // origin of the last write
	author uint64 // origin of the next write

	taker  uint64 // client of the last lock
	client uint64 // client of the next lock

	newer bool // at least one write is unknown to version 0.1.0, or version 0.1.0 would apply it differently

	most int  // the size in bytes beyond which the next write ends its command; 0: no limit
	full bool // a write was refused because of the limit most, and has ended its command
}

// errFull is the panic that ends a command which writes too much (Ctx.Call).
var errFull = errors.New("store: the command writes too much")

// writesVersion is the latest version of a write set.
const writesVersion = 2

// Version returns the lowest version that can hold these writes, because older nodes stop only at a higher one.
func (w *WriteSet) Version() byte {
	if w.newer {
		return writesVersion
	}
	return 1
}

// Len returns the number of writes.
func (w *WriteSet) Len() int { return w.n }

// Size returns the length of the encoded writes in bytes.
func (w *WriteSet) Size() int { return len(w.buf) }

// Bytes returns the encoded writes. They are valid until the next change.
func (w *WriteSet) Bytes() []byte { return w.buf }

// Forget drops the buffer, and so the writes, if the buffer is large. After Forget, only Reset may be called.
func (w *WriteSet) Forget() {
	if cap(w.buf) > keepWrites {
		w.buf = nil
	}
}

// Reset empties the write set and keeps its memory.
func (w *WriteSet) Reset() { *w = WriteSet{buf: w.buf[:0]} }

func (w *WriteSet) begin(o op, db int) {
	if w.most > 0 && len(w.buf) > w.most {
		w.full = true
		panic(errFull)
	}
	if db != w.db {
		w.buf = append(w.buf, byte(opDB))
		w.int(int64(db))
		w.db = db
	}
	if w.author != w.origin {
		w.origin = w.author
		w.buf = binary.AppendUvarint(append(w.buf, byte(opOrigin)), w.origin)
	}
	w.buf = append(w.buf, byte(o))
	w.n++
}

// takes says which client takes the lock that the next write may make.
func (w *WriteSet) takes() {
	if w.client != w.taker {
		w.taker, w.newer = w.client, true
		w.buf = binary.AppendUvarint(append(w.buf, byte(opTaker)), w.taker)
	}
}

func (w *WriteSet) int(n int64) { w.buf = binary.AppendUvarint(w.buf, uint64(n)) }

func (w *WriteSet) str(s string) {
	w.buf = codec.AppendStr(w.buf, s)
}

// ErrCorrupt means that ApplyVersion got bytes that are not a write set. The node must stop, or its state would differ from that of others.
var ErrCorrupt = errors.New("store: corrupt write set")

// decoder decodes the arguments of primitive writes.
type decoder struct{ codec.Reader }

func newDecoder(b []byte) decoder { return decoder{codec.Reader{B: b}} }

func (d *decoder) int() int64 { return int64(d.Uvarint()) }

func (d *decoder) db() int {
	n := d.Uvarint()
	if n >= Databases {
		d.Bad = true
		return 0
	}
	return int(n)
}

// deadline decodes the deadline of a key.
func (d *decoder) deadline() int64 {
	at := d.int()
	d.Bad = d.Bad || at < 0
	return at
}

// op decodes the operation of a write.
func (d *decoder) op() op { return op(d.Byte()) }

// Apply applies an encoded write set of the latest version. See ApplyVersion.
func (s *Store) Apply(writes []byte, seq uint64, sink Sink) error {
	return s.ApplyVersion(writesVersion, writes, seq, sink)
}

// ApplyVersion applies an encoded write set of the given version and number. sink, which may be nil, gets the messages. writes may be used
// again.
func (s *Store) ApplyVersion(version byte, writes []byte, seq uint64, sink Sink) error {
	d := newDecoder(writes)
	t := committed{s: s, seq: seq, first: version < writesVersion}
	db := 0
	ahead := -1 // the length of the rest of the writes whose keys are still to be read ahead; -1: none
	if s.anyLarge() {
		ahead = len(d.B)
	}
	w := s.watching(len(writes))
	for len(d.B) > 0 {
		if len(d.B) <= ahead {
			ahead = s.readAhead(d.B, db)
		}
		o := d.op()
		if o == opDB {
			db = d.db()
		} else {
			w.look(o, d, db)
			if !s.applyOne(&t, o, &d, db, sink) {
				return fmt.Errorf("%w: unknown operation %d", ErrCorrupt, o)
			}
		}
		if d.Bad {
			return fmt.Errorf("%w: operation %d is cut short, out of range or on a key of another type", ErrCorrupt, o)
		}
		w.seen(o)
	}
	return nil
}

// applyOne decodes one write completely before it changes anything. It returns false for an unknown
// operation.
func (s *Store) applyOne(t *committed, o op, d *decoder, db int, sink Sink) bool {
	switch o {
	case opSet:
		key, value, deadline := d.Str(), d.Str(), d.deadline()
		if !d.Bad {
			setString(t, db, key, value, deadline)
		}
	case opLock:
		key, value, deadline := d.Str(), d.Str(), d.deadline()
		if !d.Bad {
			setLock(t, db, key, value, deadline)
		}
	case opMark:
		if key, marks := d.Str(), d.int(); !d.Bad {
			if d.Bad = marks&^int64(formMarks) != 0; !d.Bad {
				addMarks(t, db, key, strForm(marks))
			}
		}
	case opKeep:
		if key, value := d.Str(), d.Str(); !d.Bad {
			d.Bad = !keepString(t, db, key, value)
		}
	case opForm:
		if key, form := d.Str(), d.int(); !d.Bad {
			d.Bad = form < 0 || form > int64(formText) || !formString(t, db, key, strForm(form))
		}
	case opTokens:
		d.Bad = !s.tokens.above(d.int()) || d.Bad
	case opDelete:
		if key := d.Str(); !d.Bad {
			t.remove(db, key)
		}
	case opExpire:
		if key := d.Str(); !d.Bad {
			s.expired++
			if e := s.dbs[db].get(key); e != nil {
				t.grow(db, -e.size())
				// An expiry counts as part of the key's last change: it changes nothing for a WATCH that found the key expired.
				s.removals.note(db, s.dbs[db].remove(e), max(e.changed, s.swapped[db]))
			}
		}
	case opDeadline:
		if key, at := d.Str(), d.deadline(); !d.Bad {
			t.setDeadline(db, key, at)
		}
	case opHashSet:
		if key, field, value := d.Str(), d.Str(), d.Str(); !d.Bad {
			d.Bad = !hashSet(t, db, key, field, string([]byte(value)))
		}
	case opHashDelete:
		if key, field := d.Str(), d.Str(); !d.Bad {
			d.Bad = !hashDelete(t, db, key, field)
		}
	case opPublish:
		if kind, channel, msg := d.int(), d.Str(), d.Str(); !d.Bad && sink != nil && PublishKind(kind) != Audit {
			sink.Publish(PublishKind(kind), string([]byte(channel)), string([]byte(msg)))
		}
	case opFlush:
		s.removals.noteAll(db, s.dbs[db], t.seq)
		s.dbs[db] = newKeyspace(&s.hashes)
	case opSwap:
		if a, b := d.db(), d.db(); !d.Bad {
			s.removals.noteAll(a, s.dbs[a], t.seq)
			s.removals.noteAll(b, s.dbs[b], t.seq)
			s.dbs[a], s.dbs[b] = s.dbs[b], s.dbs[a]
			s.swapped[a], s.swapped[b] = t.seq, t.seq
			s.tokens.swap(a, b)
		}
	case opMove, opCopy:
		if to, key, name := d.db(), d.Str(), d.Str(); !d.Bad {
			moveKey(t, db, key, to, name, o == opCopy)
		}
	case opScriptLoad:
		if sha, body, pinned := d.Str(), d.Str(), d.int(); !d.Bad {
			s.scripts.load(string([]byte(sha)), string([]byte(body)), pinned != 0)
		}
	case opPatch:
		if key, offset, patch := d.Str(), d.int(), d.Str(); !d.Bad {
			d.Bad = !patchString(t, db, key, offset, patch)
		}
	case opOrigin, opTaker:
		d.int() // only EachTouched or the witness uses it
	case opConfig:
		// Version 0.1.0 does not follow a parameter of forms.go, so neither does a node that applies its entries.
		if name, value := d.Str(), d.Str(); !d.Bad && !(t.first && FormParam(name)) {
			s.config = s.config.with(string([]byte(name)), string([]byte(value)))
		}
	case opScriptFlush:
		s.scripts = newScriptCache()
	case opPushHead, opPushTail, opListSet, opListInsert, opListRemove:
		applyList(t, o, d, db)
	case opSetAdd, opSetRemove, opScoreSet, opScoreRemove, opScoreSetLarge:
		applyMember(t, o, d, db)
	case opHold, opDrop, opTell, opLapse:
		applyLock(t, o, d, db)
	case opUserSet, opUserDelete:
		s.applyUser(o, d, t.seq)
	default:
		return s.applyLibrary(o, d)
	}
	return true
}
