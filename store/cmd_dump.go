package store

import (
	"math"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// dumpCommands transfer values from one server to another.
var dumpCommands = []Command{
	{
		Name: "dump", Arity: 2, Flags: ReadOnly, Group: "generic", Since: "2.6.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Tips:    []string{"nondeterministic_output"},
		Summary: "Returns the value of a key in a serialized form.",
		Usage:   "key", Run: cmdDump,
	},
	{
		Name: "restore", Arity: -4, Flags: Write | DenyOOM | Dangerous, Group: "generic", Since: "2.6.0",
		Keys:    firstKey(KeyOW | KeyUpdate),
		Summary: "Creates a key from the serialized form of a value.",
		Usage:   "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]", Run: cmdRestore,
	},
}

func cmdDump(c *Ctx) Reply {
	e := c.Lookup(c.DB, c.Args[1])
	if e == nil {
		return Nil
	}
	if e.typ == TypeLock {
		return lockMoves
	}
	dump, ok := e.dump(c)
	if !ok {
		return Err(c.ErrReply())
	}
	return Str(dump)
}

// restoreOptions are the options of RESTORE. IDLETIME and FREQ are checked and ignored, because
// this server evicts nothing by them.
type restoreOptions struct{ replace, absTTL, idle, freq bool }

func (o *restoreOptions) parse(args [][]byte) *Reply {
	for ; len(args) > 0; args = args[1:] {
		switch word := args[0]; {
		case equalFold(word, "replace"):
			o.replace = true
		case equalFold(word, "absttl"):
			o.absTTL = true
		case equalFold(word, "idletime") && len(args) > 1 && !o.freq:
			n, ok := redistext.ParseInt(args[1])
			if !ok {
				return &notInteger
			}
			if n < 0 {
				return &badIdleTime
			}
			o.idle = true
			args = args[1:]
		case equalFold(word, "freq") && len(args) > 1 && !o.idle:
			n, ok := redistext.ParseInt(args[1])
			if !ok {
				return &notInteger
			}
			if n < 0 || n > 255 {
				return &badFreq
			}
			o.freq = true
			args = args[1:]
		default:
			return &syntaxError
		}
	}
	return nil
}

var (
	badIdleTime = Err(ErrIdleTime)
	badFreq     = Err(ErrFreq)
)

func cmdRestore(c *Ctx) Reply {
	o := restoreOptions{}
	if fault := o.parse(c.Args[4:]); fault != nil {
		return *fault
	}
	key := c.Args[1]
	if !o.replace && c.LookupWrite(c.DB, key) != nil {
		return Err(ErrBusyKey)
	}
	ttl, ok := redistext.ParseInt(c.Args[2])
	switch {
	case !ok:
		return notInteger
	case ttl < 0:
		return Err(ErrRestoreTTL)
	}
	text, ok := payload(bytesToString(c.Args[3]))
	if !ok {
		return Err(ErrDumpChecksum)
	}
	c.work(len(text) / 8) // one step for each 8 bytes, because an element may have only 8 bytes
	value, ok, larger := readValue(text, c.unpackRoom())
	switch {
	case larger:
		return Err(c.ErrTooBig())
	case !ok:
		return Err(ErrDumpFormat)
	}
	existed := c.discard(key)
	deadline := int64(0)
	switch {
	case ttl == 0:
	case !o.absTTL && ttl > math.MaxInt64-c.UnixMilli(): // in Redis the sum overflows to a time in the past
		c.stored(eventGeneric, "restore", key, existed, true)
		return OK
	case !o.absTTL:
		deadline = c.DeadlineIn(ttl)
	case c.passed(ttl):
		c.stored(eventGeneric, "restore", key, existed, true)
		return OK
	default:
		deadline = c.DeadlineAt(ttl)
	}
	c.create(key, &value, deadline)
	c.event(eventGeneric, "restore", key)
	return OK
}

// create creates a key that does not exist.
func (c *Ctx) create(key []byte, v *rdbValue, deadline int64) {
	switch v.typ {
	case TypeString:
		c.SetString(c.DB, key, v.str, deadline)
		return
	case TypeHash:
		for i := 0; i < len(v.list); i += 2 {
			c.work(stepsOf(v.list[i]))
			c.HashSet(c.DB, key, v.list[i], v.list[i+1])
		}
	case TypeList:
		for _, value := range v.list {
			c.work(stepsOf(value))
			c.PushTail(c.DB, key, value)
		}
	case TypeSet:
		for _, name := range v.list {
			c.work(stepsOf(name))
			c.SetAdd(c.DB, key, name)
		}
	case TypeSortedSet:
		c.writeScores(key, v.scores)
	}
	if deadline != 0 {
		c.SetDeadline(c.DB, key, deadline)
	}
}
