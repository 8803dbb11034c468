package call

import (
	"hash/maphash"

	"github.com/lockstep-io/lockstep/store"
)

// HeavyBytes is the number of bytes above which a command's arguments, replies or writes are charged as heavy work (package fair).
const HeavyBytes = 64 << 10

// MaxRequest bounds the bytes of memory that the calls of one request take at the leader. No session sends as much.
const MaxRequest = 128 << 20

// callTakes and argumentTakes are the bytes of memory that a call and an argument take besides their own bytes. In a frame they take
// less.
const (
	callTakes     = 64
	argumentTakes = 24
)

// Fitting returns how many of the calls, from the first on, fit into one request. If it is 0, the first call alone is too long.
func Fitting(calls []Call) int {
	left := MaxRequest
	for i := range calls {
		if left = roomLeft(&calls[i], left); left < 0 {
			return i
		}
	}
	return len(calls)
}

// roomLeft returns left minus the bytes that a call takes of MaxRequest. It stops as soon as the result is less than 0.
func roomLeft(c *Call, left int) int {
	left -= callTakes + len(c.User)
	for i := 0; i < len(c.Args) && left >= 0; i++ {
		left -= argumentTakes + len(c.Args[i])
	}
	if c.Txn == nil {
		return left
	}
	for i := 0; i < len(c.Txn.Watched) && left >= 0; i++ {
		left -= argumentTakes + len(c.Txn.Watched[i].Key)
	}
	for i := 0; i < len(c.Txn.Calls) && left >= 0; i++ {
		left = roomLeft(&c.Txn.Calls[i], left)
	}
	return left
}

// TooLong is the reply to a call that is too long for a request. It names limit, the bytes that a command may write.
func TooLong(c *Call, limit int64) store.Reply {
	switch {
	case c.Txn == nil:
		return store.Err(c.Cmd.ErrTooLong(limit))
	case c.Txn.Observe:
		return store.Err(store.ErrArgumentsTooBig(limit))
	}
	return store.Err(store.ErrExecAbort(store.ErrEntryTooBig(limit)))
}

// AnyLarge reports whether one call by itself has more than HeavyBytes of arguments: many small ones are not heavy together.
func AnyLarge(calls []Call) bool {
	for i := range calls {
		if Exceeds(calls[i:i+1], HeavyBytes) {
			return true
		}
	}
	return false
}

// Size returns the bytes of the arguments and of the watched keys, with argumentTakes for each.
func Size(calls []Call) (bytes int) {
	for i := range calls {
		for _, arg := range calls[i].Args {
			bytes += argumentTakes + len(arg)
		}
		if t := calls[i].Txn; t != nil {
			bytes += Size(t.Calls)
			for i := range t.compared() {
				bytes += argumentTakes + len(t.Watched[i].Key)
			}
		}
	}
	return bytes
}

// Exceeds reports whether Size(calls) is more than limit. It stops counting as soon as the sum is more than limit.
func Exceeds(calls []Call, limit int) bool {
	return sizeLeft(calls, limit) < 0
}

// sizeLeft returns limit minus Size(calls). It stops as soon as the result is less than 0.
func sizeLeft(calls []Call, limit int) int {
	for i := range calls {
		for _, arg := range calls[i].Args {
			if limit -= argumentTakes + len(arg); limit < 0 {
				return limit
			}
		}
		if t := calls[i].Txn; t != nil {
			if limit = sizeLeft(t.Calls, limit); limit < 0 {
				return limit
			}
			for i := range t.compared() {
				if limit -= argumentTakes + len(t.Watched[i].Key); limit < 0 {
					return limit
				}
			}
		}
	}
	return limit
}

// compared returns the watched keys of an EXEC. Those of a WATCH count as its arguments already.
func (t *Transaction) compared() []Watched {
	if t.Observe {
		return nil
	}
	return t.Watched
}

// Arguments returns the number of all arguments of calls, and of the keys that their transactions have watched.
func Arguments(calls []Call) (n int) {
	for i := range calls {
		n += len(calls[i].Args)
		if t := calls[i].Txn; t != nil {
			n += Arguments(t.Calls) + len(t.compared())
		}
	}
	return n
}

// KeepsPlace reports whether clients build locks from all of these calls. Such calls keep their place even if their client does
// heavy work.
func KeepsPlace(calls []Call) bool {
	for i := range calls {
		c := &calls[i]
		if c.Txn == nil && !c.Cmd.Is(store.Scripting) && !(c.Cmd.Is(store.Write) && (c.Cmd.Is(store.Fast) || setsOrDeletes[c.Cmd.Name])) {
			return false
		}
	}
	return true
}

var setsOrDeletes = map[string]bool{"set": true, "del": true}

// RunsScript reports whether any of the calls runs a script.
func RunsScript(calls []Call) bool {
	for i := range calls {
		if c := &calls[i]; c.Txn != nil && RunsScript(c.Txn.Calls) || c.Txn == nil && c.Cmd.RunsLua() {
			return true
		}
	}
	return false
}

// RunsFunction reports whether a call, or a command of its transaction, calls a function.
func RunsFunction(calls []Call) bool {
	for i := range calls {
		c := &calls[i]
		if c.Txn != nil && RunsFunction(c.Txn.Calls) || c.Txn == nil && (c.Cmd.Name == "fcall" || c.Cmd.Name == "fcall_ro") {
			return true
		}
	}
	return false
}

// ReadOnly reports whether all calls only read, so that it does no harm to run them twice.
func ReadOnly(calls []Call) bool {
	for i := range calls {
		c := &calls[i]
		if c.Txn != nil && !ReadOnly(c.Txn.Calls) || c.Txn == nil && !c.Cmd.Is(store.ReadOnly) {
			return false
		}
	}
	return true
}

// AreLongReads reports whether all calls are commands that only read, and at least one of them may take long. A transaction is no
// long read.
func AreLongReads(calls []Call) bool {
	long := false
	for i := range calls {
		c := &calls[i]
		if c.Txn != nil || !c.Cmd.Is(store.ReadOnly) || c.Cmd == Confirm {
			return false
		}
		long = long || !c.Cmd.Is(store.Fast)
	}
	return long
}

// Kind is what calls run, for predictions of their time.
type Kind struct {
	Name   string
	Number uint64 // tells scripts apart, and mixed pipelines
}

// seed is for the hashes in the numbers of kinds.
var seed = maphash.MakeSeed()

// KindOf returns what the calls run. A mixed pipeline has a kind of its own, lest it make single calls look heavy.
func KindOf(calls []Call) Kind {
	k := kindOf(calls)
	if Exceeds(calls, HeavyBytes) {
		k.Name += " with large arguments"
	}
	return k
}

func kindOf(calls []Call) Kind {
	first := kindOfOne(&calls[0])
	for i := range calls[1:] {
		if kindOfOne(&calls[1+i]) == first {
			continue
		}
		var all maphash.Hash
		all.SetSeed(seed)
		for j := range calls {
			maphash.WriteComparable(&all, kindOfOne(&calls[j]))
		}
		return Kind{"several", all.Sum64()}
	}
	return first
}

func kindOfOne(c *Call) Kind {
	switch {
	case c.Txn != nil && len(c.Txn.Calls) > 0:
		k := kindOf(c.Txn.Calls)
		return Kind{"exec " + k.Name, k.Number}
	case c.Txn != nil:
		return Kind{Name: "watch"}
	}
	k := Kind{Name: c.Cmd.FullName()}
	if c.Cmd.Is(store.Scripting) && len(c.Args) > 1 {
		k.Number = maphash.Bytes(seed, c.Args[1])
	}
	return k
}

// User returns the user of these calls, "" for the default user. any is false for a node's own calls, of which only asksVersion
// has a name.
func User(calls []Call) (name string, any bool) {
	if len(calls) == 0 {
		return "", false
	}
	if calls[0].User == store.SystemUser {
		if cmd := calls[0].Cmd; cmd != nil && cmd.FullName() == asksVersion {
			name = store.SystemUser
		}
		return name, false
	}
	if name = calls[0].User; name == store.Anonymous {
		name = "" // Anonymous stands for the default user
	}
	return name, true
}
