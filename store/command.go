package store

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"time"
)

// Flags tell how a command may be called and where it runs. Everything that
// is known about a command apart from its handler derives from its row.
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
	// Dangerous commands can hurt a server in use.
	Dangerous
	// Blocking commands may wait for data.
	Blocking
	// NoMulti commands may not be queued in a transaction.
	NoMulti
	// NoAuth commands run before authentication.
	NoAuth
	// Loading commands run while the data set loads.
	Loading
	// Stale commands run on a node with stale data.
	Stale
	// AllowBusy commands run while a script is busy.
	AllowBusy
	// MayReplicate commands are not writes but have effects on other nodes.
	// COMMAND INFO does not show this flag.
	MayReplicate
	// MovableKeys commands have keys that the key specs do not tell.
	MovableKeys
	// Connection commands belong to Redis's ACL category of that name.
	Connection
	// Local commands are answered by the node that the client is connected
	// to, without the log; they have no Run here.
	Local
	// SkipMonitor commands are not shown to MONITOR.
	SkipMonitor
	// SkipSlowlog commands are not recorded in the slow log.
	SkipSlowlog
	// Scripting commands belong to Redis's ACL category of that name.
	Scripting
	// NoAsyncLoading commands are refused while a replica loads.
	NoAsyncLoading
	// NoMandatoryKeys commands may be called without keys.
	NoMandatoryKeys
	// Keyspace commands belong to Redis's ACL category of that name although
	// their group is not "generic", whose commands all do.
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

// KeySpec tells where a command's keys are. Either they stand at Begin,
// Begin+Step, … up to Begin+Last (a negative Last counts from the end), or, if
// NumKeys is set, the argument at NumKeys holds their number and they follow
// it. If neither is set, the places of the keys depend on the other arguments;
// Find, if there is one, returns them.
type KeySpec struct {
	Begin   int
	Last    int
	Step    int
	NumKeys int
	Find    func(args [][]byte) []int
	Flags   KeyFlags
	Notes   string // a remark for COMMAND INFO
}

// Unknown reports whether the places of the keys depend on other arguments.
func (k *KeySpec) Unknown() bool { return k.Begin == 0 && k.NumKeys == 0 }

// Handler runs one command and returns its reply. It must validate before it
// writes: what it has written stays when it returns an error.
type Handler func(*Ctx) Reply

// Command is one row of the command table, kept beside its handler.
type Command struct {
	Name    string // lower case; of a subcommand, without the container's name
	Arity   int    // with the name itself (of a subcommand: with both); negative means at least
	Flags   Flags
	Keys    []KeySpec
	Group   string // as COMMAND DOCS groups them: string, hash, generic, …
	Since   string // the Redis version that first had it
	Summary string
	Usage   string // arguments in the notation of the Redis documentation
	Tips    []string

	// Categories are the ACL categories of the command's data, where its group
	// does not tell them.
	Categories []string

	Deprecated string // the Redis version that advised against it; "" if none did
	ReplacedBy string // what to use instead of a deprecated command

	Run Handler
	Sub []Command

	parent     *Command // this and what follows is set by NewTable
	table      *Table
	categories uint32 // bits, see aclCategories
	bit        int    // place among the commands that ACL rules can name
}

// FullName is the name as Redis prints it: "get", "config|get".
func (c *Command) FullName() string {
	if c.parent != nil {
		return c.parent.Name + "|" + c.Name
	}
	return c.Name
}

// Table returns the table that the row is in.
func (c *Command) Table() *Table { return c.table }

// Is reports whether all the given flags are set.
func (c *Command) Is(f Flags) bool { return c.Flags&f == f }

// ArityOK reports whether n arguments, name included, are a legal number.
func (c *Command) ArityOK(n int) bool {
	if c.Arity >= 0 {
		return n == c.Arity
	}
	return n >= -c.Arity
}

// Ctx is one command being run.
type Ctx struct {
	*Txn
	Cmd  *Command
	Args [][]byte // Args[0] is the name (of a subcommand, Args[1] is its own)
	DB   int      // SELECT in a script or a transaction changes it
	RESP int      // protocol version of the client, 2 or 3: scripts see it

	// User is whose rights count; nil: may do anything.
	User *User

	// InMulti is true for commands that EXEC runs.
	InMulti bool
	// InScript is true for commands that a script calls.
	InScript bool

	// Ready is the key that a blocking command is run again for; nil: it is
	// run for the first time.
	Ready []byte
	// Wait is set by a blocking command that found nothing (see wait.go).
	Wait *Wait

	// Watch is called every workLook steps of a command that takes many, before it writes anything. It may panic,
	// to end the command. nil: nobody watches.
	Watch func()
	steps int // since the last call

	// ScriptTime is what has been used by now of the time that a script may run for.
	ScriptTime time.Duration
	// StopAfter is when a script is stopped, to be run again; 0: never.
	StopAfter time.Duration
	// Stopped is the error of a script that was stopped, by its time limit or by SCRIPT KILL …
	Stopped Error
	// … or because of StopAfter.
	StoppedForNow bool
	// TookAll tells that a script was stopped because it took all of the memory that one may.
	TookAll bool
}

// workLook is after how many steps Watch is called: some tenths of a millisecond.
const workLook = 4096

// work accounts for steps of a command that its arguments can make as long as one likes. A step is a member that
// is looked up, or 64 bytes.
func (c *Ctx) work(steps int) {
	if c.steps += steps; c.steps >= workLook {
		c.steps = 0
		if c.Watch != nil {
			c.Watch()
		}
	}
}

// Arg returns argument i as a string of its own.
func (c *Ctx) Arg(i int) string { return string(c.Args[i]) }

// Table finds commands by name.
type Table struct {
	byName map[string]*Command
	sorted []*Command
	acl    *aclTable
}

// NewTable makes a table of rows. Two rows of one name are a programming
// error and panic at start.
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

// All returns every command, sorted by name; subcommands are inside their
// containers.
func (t *Table) All() []*Command { return t.sorted }

// Lookup finds a command by name in any case; nil if there is none. It does
// not allocate for names up to 32 bytes.
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

// Resolve finds the command of args, descending into subcommands. With an
// unknown subcommand or a container that needs one, it returns the container
// and false.
func (t *Table) Resolve(args [][]byte) (cmd *Command, ok bool) {
	cmd = t.Lookup(args[0])
	if cmd == nil || len(cmd.Sub) == 0 {
		return cmd, cmd != nil
	}
	if len(args) < 2 {
		// Redis reports the container's arity here.
		return cmd, cmd.Run != nil || cmd.Is(Local)
	}
	for i := range cmd.Sub {
		if strings.EqualFold(cmd.Sub[i].Name, string(args[1])) {
			return &cmd.Sub[i], true
		}
	}
	return cmd, false
}

// KeysOf returns the keys that the command would touch, for ACLs, WATCH and
// COMMAND GETKEYS. ok is false if the arguments do not fit the key specs.
func (c *Command) KeysOf(args [][]byte) (keys [][]byte, ok bool) {
	for _, ks := range c.Keys {
		at, ok := ks.places(args)
		if !ok {
			return nil, false
		}
		for _, i := range at {
			keys = append(keys, args[i])
		}
	}
	return keys, true
}

// places returns the arguments that a key spec means; ok is false if the
// arguments do not fit it.
func (ks *KeySpec) places(args [][]byte) (at []int, ok bool) {
	if ks.Unknown() {
		if ks.Find != nil {
			at = ks.Find(args)
		}
		return at, true
	}
	first, last, step := ks.Begin, ks.Begin+ks.Last, max(ks.Step, 1)
	if ks.Last < 0 {
		last = len(args) + ks.Last
	}
	if ks.NumKeys > 0 {
		if ks.NumKeys >= len(args) {
			return nil, false
		}
		n, valid := ParseInt(args[ks.NumKeys])
		if !valid || n < 0 || n > int64(len(args)-ks.NumKeys-1) {
			return nil, false
		}
		first, last = ks.NumKeys+1, ks.NumKeys+int(n)
	}
	for i := first; i <= last; i += step {
		if i >= len(args) {
			return nil, false
		}
		at = append(at, i)
	}
	return at, true
}

// randIntN is the source of the commands that answer at random. Evaluation
// happens once, so replicas need not agree on it.
func randIntN(n int) int { return rand.IntN(n) }
