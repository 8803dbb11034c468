package store

// Toucher receives the keys that a write set changes, for client-side caching.
type Toucher interface {
	// Touch reports a changed key of any database; the argument key is valid only during the call. origin is the client (SetOrigin), or 0.
	Touch(key string, origin uint64)
	// TouchAll reports that any key may have changed: a database was emptied, two databases were swapped, or
	// the write is unknown.
	TouchAll()
}

// KeySink receives the write sets that were applied.
type KeySink interface {
	// Applied receives every write set that has been applied, before any command is evaluated on
	// the new state. It must not block.
	Applied(writes []byte)
	// Missed reports that some writes and messages will never be passed on: a snapshot has replaced
	// the state, or this node is no longer a member.
	Missed()
}

// shapes are the arguments of the primitive writes: i is an integer, s a string, k a key that changes, u a key that does not. * is a
// number: the rest repeats so often.
var shapes = [...]string{
	opSet: "ksi", opDelete: "k", opExpire: "k", opDeadline: "ki", opHashSet: "kss", opHashDelete: "ks",
	opPublish: "iss", opFlush: "", opSwap: "ii", opMove: "ikk", opCopy: "iuk", opScriptLoad: "ssi", opScriptFlush: "",
	opPatch: "kis", opPushHead: "ks", opPushTail: "ks", opListSet: "kis", opListInsert: "kis", opListRemove: "kii",
	opSetAdd: "ks", opSetRemove: "ks", opScoreSet: "ksi", opScoreRemove: "ks", opScoreSetLarge: "ksi",
	opConfig: "ss", 27: "ss", 28: "s",
	opLibraryLoad: "ss*sisi", opLibraryDelete: "s", opLibraryFlush: "", opOrigin: "i", opKeep: "ks", opForm: "ui",
	opTokens: "i", opHold: "ksiiiiiiii", opDrop: "ks", opTell: "ui", opLock: "ksi", opMark: "ui", opLapse: "ks",
	opTaker: "i",
}

// known reports whether an operation has a shape. Operations without arguments have an empty one, like unused codes.
func (o op) known() bool {
	return int(o) < len(shapes) && (shapes[o] != "" || o == opFlush || o == opScriptFlush || o == opLibraryFlush)
}

// EachTouched tells t what an encoded write set changes, in order. It ends with TouchAll at an unknown operation.
func EachTouched(writes []byte, t Toucher) {
	d := newDecoder(writes)
	origin := uint64(0)
	for len(d.B) > 0 && !d.Bad {
		o := d.op()
		switch {
		case o == opDB:
			d.int()
		case o == opOrigin:
			origin = uint64(d.int())
		case o == opTaker:
			d.int()
		case !o.known():
			t.TouchAll()
			return
		case o == opFlush:
			t.TouchAll()
		case o == opSwap: // all keys of two databases change; TouchAll is enough, because Touch does not distinguish databases
			d.int()
			d.int()
			t.TouchAll()
		case o == opExpire:
			t.Touch(d.Str(), 0) // no client caused an expiry
		default:
			d.eachKey(shapes[o], func(key string) { t.Touch(key, origin) })
		}
	}
}

// eachKey decodes the arguments of a write, and calls fn for the keys that it changes.
func (d *decoder) eachKey(shape string, fn func(key string)) {
	for i := range len(shape) {
		switch shape[i] {
		case 'i':
			d.int()
		case '*':
			for n := d.int(); n > 0 && !d.Bad; n-- {
				d.eachKey(shape[i+1:], fn)
			}
			return
		case 'k':
			if key := d.Str(); !d.Bad {
				fn(key)
			}
		default:
			d.Str()
		}
	}
}

// SetOrigin sets the client that causes the following writes, or 0. Only clients for whose own changes notifications are late, or missing,
// have a number.
func (t *Txn) SetOrigin(origin uint64) { t.ws.author = origin }

// SetClient sets the client that takes the locks of the following writes; 0: nobody knows. A cluster that may have nodes of version 0.1.0 does
// not note it.
func (t *Txn) SetClient(client uint64) {
	if client != 0 && t.Older() {
		client = 0
	}
	t.ws.client = client
}
