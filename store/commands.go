package store

import (
	"github.com/lockstep-io/lockstep/store/redistext"
)

// Commands returns the rows of all data commands. Each group's table is at the top of the file with
// its handlers.
func Commands() []Command {
	var all []Command
	for _, group := range [][]Command{
		stringCommands, counterCommands, stringRangeCommands, lcsCommands,
		keyCommands, expireCommands, databaseCommands, scanCommands, objectCommands,
		hashCommands, hashCounterCommands, hashRandomCommands,
		listCommands, listSearchCommands, listPopCommands,
		setCommands, setRandomCommands, setAlgebraCommands,
		sortedSetCommands, sortedSetRangeCommands, sortedSetSpanCommands,
		sortedSetPopCommands, sortedSetAlgebraCommands,
		blockingCommands, sortCommands, dumpCommands,
		bitCommands, bitFieldCommands,
		publishCommands, lockCommands, acquireCommands, sightCommands,
	} {
		all = append(all, group...)
	}
	return all
}

// firstKey returns the key spec of a command whose only key is its first argument.
func firstKey(f KeyFlags) []KeySpec { return []KeySpec{{Begin: 1, Step: 1, Flags: f}} }

// update is c.write for a command that also reads the key: if the key does not exist, it publishes the event keymiss.
func (c *Ctx) update(t Type) (e *Entry, ok bool) {
	e, ok = c.write(t)
	if e == nil {
		c.eventOn(eventMiss, "keymiss")
	}
	return e, ok
}

// wrongType is the reply to a command on a key of another type.
var wrongType = Err(ErrWrongType)

// emptyList is the reply of a command that lists the elements of a missing key.
var emptyList = Reply{Kind: Array}

// read looks up the key at Args[1]. ok is false for another type than t; e is nil for a missing key.
func (c *Ctx) read(t Type) (e *Entry, ok bool) {
	e = c.Lookup(c.DB, c.Args[1])
	return e, e == nil || e.typ == t
}

// write is c.read for a command that may write the key: if the key has expired, it deletes the key (LookupWrite).
func (c *Ctx) write(t Type) (e *Entry, ok bool) {
	e = c.LookupWrite(c.DB, c.Args[1])
	return e, e == nil || e.typ == t
}

// parseInt32 parses an argument that Redis parses as a C int.
func parseInt32(arg []byte) (int, *Reply) {
	n, ok := redistext.ParseInt(arg)
	if !ok {
		return 0, &notInteger
	}
	if n < -1<<31 || n > 1<<31-1 {
		return 0, &outOfInt32
	}
	return int(n), nil
}

var (
	notInteger = Err(ErrNotInteger)
	outOfInt32 = Err(ErrIntRange(-1<<31, 1<<31-1))
)
