package store

// Toucher is told which keys a write set changes (client side caching).
type Toucher interface {
	// Touch is told of a key that has been changed. origin is who did it, 0 if
	// nobody in particular. The key must be copied if it is kept. Like Redis's
	// tracking this does not tell databases apart.
	Touch(key string, origin uint64)
	// TouchAll is told that a database has been emptied.
	TouchAll()
}

// KeySink is shown what has been applied.
type KeySink interface {
	// Applied is called with every write set that has taken effect, before
	// anything is evaluated on the new state. It must not block.
	Applied(writes []byte)
	// Missed is called when what was written and published is never shown: a
	// snapshot has taken the place of the state, or this node is a member no more.
	Missed()
}

// shapes are the arguments of the primitive writes: i an integer, s a string,
// k a key that is changed, u a key that is not; * a number that says how often
// what follows comes.
var shapes = [...]string{
	opSet: "ksi", opDelete: "k", opExpire: "k", opDeadline: "ki", opHashSet: "kss", opHashDelete: "ks",
	opPublish: "iss", opFlush: "", opSwap: "ii", opMove: "ikk", opCopy: "iuk", opScriptLoad: "ssi", opScriptFlush: "",
	opPatch: "kis", opPushHead: "ks", opPushTail: "ks", opListSet: "kis", opListInsert: "kis", opListRemove: "kii",
	opSetAdd: "ks", opSetRemove: "ks", opScoreSet: "ksi", opScoreRemove: "ks", opScoreSetLarge: "ksi",
	opConfig: "ss", 27: "ss", 28: "s",
	opLibraryLoad: "ss*sisi", opLibraryDelete: "s", opLibraryFlush: "", opOrigin: "i", opKeep: "ks", opForm: "ui",
}

// known reports whether an operation has a shape. Those without arguments are
// told apart from gaps between the codes here.
func (o op) known() bool {
	return int(o) < len(shapes) && (shapes[o] != "" || o == opFlush || o == opScriptFlush || o == opLibraryFlush)
}

// EachTouched tells t what an encoded write set changes, in order. Of an
// operation that it does not know it assumes the worst.
func EachTouched(writes []byte, t Toucher) {
	d := decoder{b: writes}
	origin := uint64(0)
	for len(d.b) > 0 && !d.bad {
		o := op(d.b[0])
		d.b = d.b[1:]
		switch {
		case o == opDB:
			d.int()
		case o == opOrigin:
			origin = uint64(d.int())
		case !o.known():
			t.TouchAll()
			return
		case o == opFlush:
			t.TouchAll()
		case o == opExpire:
			t.Touch(d.str(), 0) // time did it
		default:
			d.touch(shapes[o], origin, t)
		}
	}
}

func (d *decoder) touch(shape string, origin uint64, t Toucher) {
	for i := range len(shape) {
		switch shape[i] {
		case 'i':
			d.int()
		case '*':
			for n := d.int(); n > 0 && !d.bad; n-- {
				d.touch(shape[i+1:], origin, t)
			}
			return
		case 'k':
			if key := d.str(); !d.bad {
				t.Touch(key, origin)
			}
		default:
			d.str()
		}
	}
}

// SetOrigin says who makes the writes that follow: a number that a server gives
// to a client which does not want to hear of its own changes, or 0.
func (t *Txn) SetOrigin(origin uint64) { t.ws.author = origin }
