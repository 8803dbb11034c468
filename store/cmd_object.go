package store

import (
	"github.com/lockstep-io/lockstep/store/redistext"
)

// objectCommands are the commands that report how a value is stored.
var objectCommands = []Command{
	{
		Name: "object", Arity: -2, Group: "generic", Since: "2.2.3",
		Summary: "Tells how the value of a key is stored.",
		Sub: []Command{
			{
				Name: "encoding", Arity: 3, Flags: ReadOnly, Group: "generic", Since: "2.2.3",
				Keys:    []KeySpec{{Begin: 2, Step: 1, Flags: KeyRO}},
				Tips:    []string{"nondeterministic_output"},
				Summary: "Returns the name of the form in which the value of a key is held.",
				Usage:   "key", Run: cmdObjectEncoding,
			},
			{
				Name: "freq", Arity: 3, Flags: ReadOnly, Group: "generic", Since: "4.0.0",
				Keys:    []KeySpec{{Begin: 2, Step: 1, Flags: KeyRO}},
				Tips:    []string{"nondeterministic_output"},
				Summary: "Returns how often a key is used.",
				Usage:   "key", Run: cmdObjectFreq,
			},
			{
				Name: "help", Arity: 2, Flags: Loading | Stale, Group: "generic", Since: "6.2.0",
				Summary: "Lists the subcommands.",
				Run:     cmdObjectHelp,
			},
			{
				Name: "idletime", Arity: 3, Flags: ReadOnly, Group: "generic", Since: "2.2.3",
				Keys:    []KeySpec{{Begin: 2, Step: 1, Flags: KeyRO}},
				Tips:    []string{"nondeterministic_output"},
				Summary: "Returns for how many seconds a key has not been used.",
				Usage:   "key", Run: cmdObjectIdletime,
			},
			{
				Name: "refcount", Arity: 3, Flags: ReadOnly, Group: "generic", Since: "2.2.3",
				Keys:    []KeySpec{{Begin: 2, Step: 1, Flags: KeyRO}},
				Tips:    []string{"nondeterministic_output"},
				Summary: "Returns how many references the value of a key has.",
				Usage:   "key", Run: cmdObjectRefcount,
			},
		},
	},
}

func cmdObjectEncoding(c *Ctx) Reply {
	e := c.Txn.Lookup(c.DB, c.Args[2])
	if e == nil {
		return Nil
	}
	return Str(e.encoding())
}

// maxEmbedded is the length in bytes of the longest string that Redis stores in one block with its header.
const maxEmbedded = 44

// encoding returns the name of the encoding that Redis would use for the value.
func (e *Entry) encoding() string {
	switch v := e.collection().(type) {
	case *Hash:
		return formName(v.Compact(), "listpack", "hashtable")
	case *Deque:
		return "quicklist"
	case *MemberSet:
		return formName(v.Compact(), "intset", "hashtable")
	case *SortedSet:
		return formName(v.Compact(), "listpack", "skiplist")
	case *Lock:
		return "lock"
	}
	if _, ok := e.shownInt(); ok {
		return "int"
	}
	if len(e.str) <= maxEmbedded && e.stringForm() != formRaw {
		return "embstr"
	}
	return "raw"
}

// shownInt returns the value of a string that Redis would store as an integer.
func (e *Entry) shownInt() (n int64, ok bool) {
	if e.typ != TypeString || e.stringForm() != formByValue {
		return 0, false
	}
	return redistext.ParseInt(stringBytes(e.str))
}

func formName(compact bool, small, large string) string {
	if compact {
		return small
	}
	return large
}

func cmdObjectFreq(c *Ctx) Reply {
	if c.Txn.Lookup(c.DB, c.Args[2]) == nil {
		return Nil
	}
	return Err(ErrLFUOff)
}

// cmdObjectIdletime always replies 0 for a key: the server stores no access times, because it
// evicts nothing by them.
func cmdObjectIdletime(c *Ctx) Reply {
	if c.Txn.Lookup(c.DB, c.Args[2]) == nil {
		return Nil
	}
	return Zero
}

// sharedIntegers is the number of small integers that Redis shares, with the highest int32 as their reference count.
const sharedIntegers = 10000

func cmdObjectRefcount(c *Ctx) Reply {
	e := c.Txn.Lookup(c.DB, c.Args[2])
	if e == nil {
		return Nil
	}
	if n, ok := e.shownInt(); ok && n >= 0 && n < sharedIntegers {
		return Int(1<<31 - 1)
	}
	return One
}

func cmdObjectHelp(*Ctx) Reply {
	return HelpText("OBJECT",
		"ENCODING <key>",
		"    Return the kind of internal representation used in order to store the value",
		"    associated with a <key>.",
		"FREQ <key>",
		"    Return the access frequency index of the <key>. The returned integer is",
		"    proportional to the logarithm of the recent access frequency of the key.",
		"IDLETIME <key>",
		"    Return the idle time of the <key>, that is the approximated number of",
		"    seconds elapsed since the last access to the key.",
		"REFCOUNT <key>",
		"    Return the number of references of the value associated with the specified",
		"    <key>.",
	)
}

// HelpText returns the reply of a container's HELP subcommand in Redis's form: a heading, the given
// lines, and HELP itself.
func HelpText(container string, lines ...string) Reply {
	elems := []Reply{Status(container + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")}
	for _, line := range lines {
		elems = append(elems, Status(line))
	}
	elems = append(elems, Status("HELP"), Status("    Prints this help."))
	return List(elems...)
}
