package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// Flags say how a command may be called and where it runs.
type Flags uint32

const (
	// Write commands may change the keyspace.
	Write Flags = 1 << iota
	// ReadOnly commands read the keyspace and nothing else.
	ReadOnly
	// DenyOOM commands may grow the keyspace.
	DenyOOM
	// Fast commands are O(1) or O(log n).
	Fast
	// NoScript commands may not be called from a script.
	NoScript
	// PubSub commands belong to publish/subscribe.
	PubSub
	// Admin commands are for operators.
	Admin
	// Dangerous commands can harm a server in use.
	Dangerous
	// Blocking commands may wait for data.
	Blocking
	// NoMulti commands may not be queued in a transaction.
	NoMulti
	// NoAuth commands may be called before authentication.
	NoAuth
	// Loading commands may be called while the data set loads.
	Loading
	// Stale commands may be called on a node with stale data.
	Stale
	// AllowBusy commands may be called while a script is busy.
	AllowBusy
	// MayReplicate commands are not writes but have effects on other nodes.
	// COMMAND INFO does not show this flag.
	MayReplicate
	// MovableKeys commands have keys whose positions depend on other arguments.
	MovableKeys
	// Connection commands belong to Redis's ACL category of that name.
	Connection
	// Local commands are answered by the node that the client is connected to, without the log.
	// They have no Run in this package.
	Local
	// SkipMonitor commands are not shown to MONITOR.
	SkipMonitor
	// SkipSlowlog commands are not recorded in the slow log.
	SkipSlowlog
	// Scripting commands belong to Redis's ACL category of that name.
	Scripting
	// NoLua commands have the flag Scripting, but neither compile nor run Lua: they run like commands without that flag. COMMAND INFO
	// does not show NoLua.
	NoLua
	// NoAsyncLoading commands are refused while a replica loads.
	NoAsyncLoading
	// NoMandatoryKeys commands may be called without keys.
	NoMandatoryKeys
	// Keyspace commands belong to Redis's ACL category of that name although their group is not
	// "generic". A command of that group needs no flag: see ACLCategories.
	Keyspace
)

// KeyFlags say what a command does with the keys of one key spec
// (https://redis.io/docs/reference/key-specs).
type KeyFlags uint16

const (
	KeyRO KeyFlags = 1 << iota
	KeyRW
	KeyOW
	KeyRM
	KeyAccess
	KeyUpdate
	KeyInsert
	KeyDelete
	KeyNotKey
	KeyIncomplete
	KeyVariable
)

// KeySpec says where a command's keys are:
//   - If Begin is set: at the indexes Begin, Begin+Step, … up to Begin+Last. A negative Last counts from the end of the arguments.
//   - If NumKeys is set: behind the argument with this index, which is their number.
//   - Otherwise the other arguments decide.
//
// Find, if set, returns the positions; only COMMAND INFO and Ahead.Add then use Begin, Last, Step and NumKeys.
type KeySpec struct {
	Begin   int
	Last    int
	Step    int
	NumKeys int
	Find    func(args [][]byte) []int
	Flags   KeyFlags
	Notes   string // a remark for COMMAND INFO
}

// Unknown reports whether the positions of the keys depend on other arguments.
func (k *KeySpec) Unknown() bool { return k.Begin == 0 && k.NumKeys == 0 }

// Handler runs one command and returns its reply. It must validate before it writes: its writes
// stay even if it returns an error.
type Handler func(*Ctx) Reply

// Command is one row of the command table, in the same file as its handler.
type Command struct {
	Name    string // in lower case; the name of a subcommand is without that of its container
	Arity   int    // the number of arguments, the name included (for a subcommand, both names); -n means n or more
	Flags   Flags
	Keys    []KeySpec
	Group   string // group as in COMMAND DOCS: string, hash, generic, …
	Since   string // first Redis version with the command
	Summary string
	Usage   string // arguments in the notation of the Redis documentation
	Tips    []string

	// Categories are the ACL categories of the command's data type, if its group does not imply
	// them.
	Categories []string

	Newer bool // version 0.1.0 does not know the command

	Deprecated string // Redis version that deprecated it; "" if not deprecated
	ReplacedBy string // what replaces a deprecated command

	Run Handler
	Sub []Command

	parent     *Command // NewTable sets this field and those below
	table      *Table
	categories uint32 // one bit for each ACL category (aclCategories)
	bit        int    // index among the commands that ACL rules can name
}

// FullName returns the name as Redis prints it: "get", "config|get".
func (c *Command) FullName() string {
	if c.parent != nil {
		return c.parent.Name + "|" + c.Name
	}
	return c.Name
}

// Table returns the table that contains the row.
func (c *Command) Table() *Table { return c.table }

// Is reports whether all the given flags are set.
func (c *Command) Is(f Flags) bool { return c.Flags&f == f }

// RunsLua reports whether the command compiles or runs Lua code, which has a time limit of its own and may be killed.
func (c *Command) RunsLua() bool { return c.Flags&(Scripting|NoLua) == Scripting }

// ArityOK reports whether n arguments, name included, are allowed.
func (c *Command) ArityOK(n int) bool {
	if c.Arity >= 0 {
		return n == c.Arity
	}
	return n >= -c.Arity
}

// Ctx is the state of one running command.
type Ctx struct {
	*Txn
	Cmd  *Command
	Args [][]byte // Args[0] is the name; for a subcommand, Args[0] is the container's name and Args[1] the subcommand's
	DB   int      // the selected database; SELECT in a script or a transaction changes it
	RESP int      // the protocol version of the reply, 2 or 3: that of the client or, in a script, that set by redis.setresp

	// User is the user whose rights apply; nil may do anything.
	User *User
	// Caller is the name of the user who has sent the command; "" for the server's own commands.
	Caller string

	// InMulti is true for commands that EXEC runs.
	InMulti bool
	// InScript is true for commands that a script calls.
	InScript bool

	// missing has hashes of the keys that the running script has found missing last (see foundMissing).
	missing [missingKeys]uint64
	misses  uint8

	// Ready is the key for which a blocking command runs again; nil in the command's first run under the present leader.
	Ready []byte
	// Waits means that a leader, perhaps an earlier one, has run the blocking command and found nothing.
	Waits bool
	// Wait is set by a blocking command that found nothing (see wait.go).
	Wait *Wait

	// Watch, if not nil, is called every workLook steps. It may panic to end the command: the caller must undo the writes.
	Watch func()
	steps int // steps counted since the last call of Watch

	// ScriptTime is how much of a script's time limit is already used up when the script begins.
	ScriptTime time.Duration
	// StopAfter is the time after which a script is stopped, to run again later; 0 means never.
	StopAfter time.Duration
	// StopKept takes the place of StopAfter while function libraries are loaded, because a stop drops what they keep.
	StopKept time.Duration
	// Stopped is the error of a call (script, command or transaction) that its time limit or a KILL has stopped, or that will run again.
	Stopped Error
	// StoppedForNow means that StopAfter or StopKept, or other requests that wait, stopped a script, command or transaction, which runs again later.
	StoppedForNow bool
	// TookAll means that a script or library was stopped for its memory, its loading time, or a fault of the interpreter.
	TookAll bool
}

// workLook is the number of steps between two calls of Watch. So many steps take a few tenths of a millisecond.
const workLook = 4096

// work counts steps of a possibly long command. A step is the lookup of a member, or the work on 64 bytes.
func (c *Ctx) work(steps int) {
	if c.steps += steps; c.steps >= workLook {
		c.steps = 0
		if c.Watch != nil {
			c.Watch()
		}
	}
}

// keySteps is the number of steps (see Ctx.work) for the lookup of a key, which hashes the key and searches the index.
const keySteps = 4

// Work counts steps as c.work does. It is for the commands of other packages.
func (c *Ctx) Work(steps int) { c.work(steps) }

// Arg returns a copy of argument i as a string.
func (c *Ctx) Arg(i int) string { return string(c.Args[i]) }

// Table finds commands by name.
type Table struct {
	byName map[string]*Command
	sorted []*Command
	acl    *aclTable
}

// NewTable creates a table of rows. It panics if two rows have the same name.
func NewTable(groups ...[]Command) *Table {
	t := &Table{byName: map[string]*Command{}}
	for _, rows := range groups {
		for i := range rows {
			row := rows[i]
			cmd := &row
			if _, dup := t.byName[cmd.Name]; dup {
				panic(fmt.Sprintf("store: command %q is registered twice", cmd.Name))
			}
			cmd.table = t
			cmd.Sub = append([]Command(nil), row.Sub...)
			for j := range cmd.Sub {
				cmd.Sub[j].parent, cmd.Sub[j].table = cmd, t
			}
			t.byName[cmd.Name] = cmd
			t.sorted = append(t.sorted, cmd)
		}
	}
	sort.Slice(t.sorted, func(i, j int) bool { return t.sorted[i].Name < t.sorted[j].Name })
	t.acl = newACLTable(t)
	return t
}

// All returns the commands, sorted by name. A subcommand is not in the list, but in the field Sub of its container.
func (t *Table) All() []*Command { return t.sorted }

// Lookup finds a command by its name in any case, or returns nil. It does not allocate.
func (t *Table) Lookup(name []byte) *Command {
	var buf [32]byte
	if len(name) > len(buf) {
		return nil
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[i] = c
	}
	return t.byName[string(buf[:len(name)])]
}

// Resolve finds the command or subcommand that args name. Otherwise cmd is nil or the container, and ok means that the container can run
// alone.
func (t *Table) Resolve(args [][]byte) (cmd *Command, ok bool) {
	cmd = t.Lookup(args[0])
	if cmd == nil || len(cmd.Sub) == 0 {
		return cmd, cmd != nil
	}
	if len(args) < 2 {
		// A container such as COMMAND can run alone. For other containers the caller replies that the number of arguments is wrong,
		// as Redis does.
		return cmd, cmd.Run != nil || cmd.Is(Local)
	}
	for i := range cmd.Sub {
		if equalFold(args[1], cmd.Sub[i].Name) {
			return &cmd.Sub[i], true
		}
	}
	return cmd, false
}

// KeysOf returns the arguments to which the key specs point, KeyNotKey ones included. ok is false if the arguments do not match.
func (c *Command) KeysOf(args [][]byte) (keys [][]byte, ok bool) {
	for _, ks := range c.Keys {
		at, ok := ks.places(args)
		if !ok {
			return nil, false
		}
		keys = slices.Grow(keys, len(at))
		for _, i := range at {
			keys = append(keys, args[i])
		}
	}
	return keys, true
}

// places returns the indices of the key arguments. ok is false if the arguments do not match the spec.
func (ks *KeySpec) places(args [][]byte) (at []int, ok bool) {
	span, at, ok := ks.find(args)
	if n := span.last - span.first; n >= 0 && span.step > 0 {
		at = slices.Grow(at, n/span.step+1)
	}
	for i := span.first; i <= span.last; i += span.step {
		at = append(at, i)
	}
	return at, ok
}

// keySpan is every step-th argument from index first to index last; it is empty if last < first.
type keySpan struct{ first, last, step int }

// find is places, but returns keys at equal distances as a span, and the positions from Find as others.
func (ks *KeySpec) find(args [][]byte) (span keySpan, others []int, ok bool) {
	none := keySpan{1, 0, 1}
	switch {
	case ks.Find != nil:
		return none, ks.Find(args), true
	case ks.Unknown():
		return none, nil, true
	}
	span = keySpan{ks.Begin, ks.Begin + ks.Last, max(ks.Step, 1)}
	if ks.Last < 0 {
		span.last = len(args) + ks.Last
	}
	if ks.NumKeys > 0 {
		if ks.NumKeys >= len(args) {
			return none, nil, false
		}
		n, valid := redistext.ParseInt(args[ks.NumKeys])
		if !valid || n < 0 || n > int64(len(args)-ks.NumKeys-1) {
			return none, nil, false
		}
		span.first, span.last = ks.NumKeys+1, ks.NumKeys+int(n)
	}
	if n := span.last - span.first; n >= 0 && span.last-n%span.step >= len(args) {
		return none, nil, false
	}
	return span, nil, true
}

// randIntN is the source of randomness for commands. Only the leader evaluates a command, so it does not matter that other nodes
// would draw other numbers.
func randIntN(n int) int { return rand.IntN(n) }
