package server

import (
	"strings"

	"lockstep/store"
)

// State is what became of a command of Redis 7.0 here.
type State string

const (
	// Done: the command does what it does in Redis.
	Done State = "done"
	// Accepted: it is answered as in Redis and has no effect, or another one.
	Accepted State = "accepted"
	// Refused: it is answered with an error that says why.
	Refused State = "refused"
)

// CommandState is a command with its state, and the reason for it unless it is
// done as in Redis.
type CommandState struct {
	Name  string // in full: "config|get"
	State State
	Why   string
}

const (
	noStreams = "streams are not part of a lock server"
	noGeo     = "geospatial indexes are not part of a lock server"
	noHLL     = "HyperLogLogs are not part of a lock server"
	noModules = "there are no modules"
	noReplica = "the nodes of a cluster replicate by Raft"
)

// absent are the families of commands that are not in the table: to a client
// they do not exist, which is what it looks for, and to a reader the error says
// why. A name that ends in '*' stands for all that begin so.
var absent = []struct{ pattern, why string }{
	{"geo*", noGeo}, {"pf*", noHLL},
	{"xack", noStreams}, {"xadd", noStreams}, {"xautoclaim", noStreams}, {"xclaim", noStreams}, {"xdel", noStreams},
	{"xgroup*", noStreams}, {"xinfo*", noStreams}, {"xlen", noStreams}, {"xpending", noStreams}, {"xrange", noStreams},
	{"xread*", noStreams}, {"xrevrange", noStreams}, {"xsetid", noStreams}, {"xtrim", noStreams},
	{"restore-asking", "nothing migrates slots: RESTORE does the same"},
}

// whyAbsent returns why a command of Redis is not here; "" if Redis does not
// have it either.
func whyAbsent(name string) string {
	name = strings.ToLower(name)
	for _, a := range absent {
		prefix, open := strings.CutSuffix(a.pattern, "*")
		if name == prefix || open && strings.HasPrefix(name, prefix) {
			return a.why
		}
	}
	return ""
}

// exceptions are the commands in the table that do not do what they do in
// Redis.
var exceptions = map[string]CommandState{
	"asking":          {State: Refused, Why: "not on the plain port, as in a Redis without cluster support"},
	"bgrewriteaof":    {State: Accepted, Why: "writes a snapshot, which shortens the log"},
	"bgsave":          {State: Accepted, Why: "writes a snapshot; every acknowledged write is on disk anyway"},
	"config|rewrite":  {State: Refused, Why: "there is no configuration file"},
	"debug":           {State: Accepted, Why: "OBJECT, SLEEP, POPULATE, PROTOCOL, ERROR, LOG and RELOAD do what they do in Redis; some others answer OK; off unless enable-debug-command says otherwise"},
	"failover":        {State: Done, Why: "hands leadership over, as LOCKSTEP TRANSFER"},
	"migrate":         {State: Refused, Why: "DUMP and RESTORE carry keys"},
	"module|list":     {State: Done, Why: noModules},
	"module|load":     {State: Refused, Why: noModules},
	"module|loadex":   {State: Refused, Why: noModules},
	"module|unload":   {State: Refused, Why: noModules},
	"object|freq":     {State: Refused, Why: "as in a Redis whose maxmemory-policy is not LFU"},
	"object|idletime": {State: Accepted, Why: "always 0: nothing is evicted, so access times are not kept"},
	"psync":           {State: Refused, Why: noReplica},
	"readonly":        {State: Refused, Why: "not on the plain port, as in a Redis without cluster support"},
	"readwrite":       {State: Refused, Why: "not on the plain port, as in a Redis without cluster support"},
	"replconf":        {State: Accepted, Why: noReplica},
	"replicaof":       {State: Refused, Why: noReplica + "; NO ONE is accepted on the leader"},
	"save":            {State: Accepted, Why: "writes a snapshot; every acknowledged write is on disk anyway"},
	"script|debug":    {State: Refused, Why: "there is no Lua debugger"},
	"slaveof":         {State: Refused, Why: noReplica + "; NO ONE is accepted on the leader"},
	"sync":            {State: Refused, Why: noReplica},
	"wait":            {State: Done, Why: "counts the other nodes that certainly have the writes on disk: at least those of the majority"},
	"waitaof":         {State: Done, Why: "a command of Redis 7.2 that clients ask for"},
}

// StateOf tells what becomes of a command of Redis 7.0, given in full. known is
// false if it is neither in the table nor known to be left out.
func StateOf(table *store.Table, name string) (state CommandState, known bool) {
	if e, is := exceptions[name]; is {
		e.Name = name
		return e, true
	}
	if named(table, []byte(name)) != nil {
		return CommandState{Name: name, State: Done}, true
	}
	top, _, _ := strings.Cut(name, "|")
	if why := whyAbsent(top); why != "" {
		return CommandState{Name: name, State: Refused, Why: why}, true
	}
	return CommandState{}, false
}
