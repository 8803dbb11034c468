package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"lockstep/cluster"
	"lockstep/store"
)

// debugCommand is a subcommand of DEBUG; args is the number of arguments, those
// two words included, and least the smallest.
type debugCommand struct {
	name        string
	least, most int
	usage       string
	summary     string
	do          handler
}

// debugCommands are what the test suites of clients use. Those that answer OK
// alone change something in Redis that is not there or need not be changed here.
func debugCommands() []debugCommand {
	return []debugCommand{
		{"change-repl-id", 2, 2, "", "Does nothing: the log has no other id.", doOK},
		{"error", 3, 3, "<text>", "Answers with an error.", doDebugError},
		{"log", 3, 3, "<text>", "Writes to the server's log.", doDebugLog},
		{"object", 3, 3, "<key>", "Describes the value of a key.", doDebugObject},
		{"pause-cron", 3, 3, "<0|1>", "Does nothing.", doOK},
		{"populate", 3, 5, "<count> [prefix] [size]", "Creates keys.", doDebugPopulate},
		{"protocol", 3, 3, "<type>", "Answers with a value of a type.", doDebugProtocol},
		{"quicklist-packed-threshold", 3, 3, "<size>", "Does nothing.", doOK},
		{"reload", 2, math.MaxInt, "[option ...]", "Writes a snapshot: what is in memory is on disk.", doDebugReload},
		{"loadaof", 2, 2, "", "The same.", doDebugReload},
		{"set-active-expire", 3, 3, "<0|1>", "Does nothing: keys go at their time.", doOK},
		{"set-disable-deny-scripts", 3, 3, "<0|1>", "Does nothing.", doOK},
		{"set-skip-checksum-validation", 3, 3, "<0|1>", "Does nothing.", doOK},
		{"sleep", 3, 3, "<seconds>", "Holds this connection for a time. Decimals allowed.", doDebugSleep},
	}
}

func doDebug(s *session, args [][]byte) store.Reply {
	for _, sub := range debugCommands() {
		if strings.EqualFold(sub.name, string(args[1])) && len(args) >= sub.least && len(args) <= sub.most {
			return sub.do(s, args)
		}
	}
	if len(args) == 2 && strings.EqualFold(string(args[1]), "help") {
		return debugHelp()
	}
	return store.Err(errSubcommandArgs("debug", args[1]))
}

func debugHelp() store.Reply {
	r := store.List(store.Status("DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"))
	for _, sub := range debugCommands() {
		r.Elems = append(r.Elems,
			store.Status(strings.TrimSpace(strings.ToUpper(sub.name)+" "+sub.usage)), store.Status("    "+sub.summary))
	}
	r.Elems = append(r.Elems, store.Status("HELP"), store.Status("    "+helpSummary))
	return r
}

// doDebugSleep holds this connection and no other.
func doDebugSleep(s *session, args [][]byte) store.Reply {
	secs, ok := store.ParseFloat(args[2])
	if !ok {
		secs = 0 // as C's strtod
	}
	nap := time.NewTimer(time.Duration(min(max(secs, 0), math.MaxInt32) * float64(time.Second)))
	defer nap.Stop()
	select {
	case <-nap.C:
	case <-s.srv.stop:
	}
	return store.OK
}

func doDebugError(_ *session, args [][]byte) store.Reply {
	return store.Err(store.Error(strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, string(args[2]))))
}

func doDebugLog(s *session, args [][]byte) store.Reply {
	s.srv.cfg.Log.Warn("DEBUG LOG", "text", string(args[2]))
	return store.OK
}

func doDebugReload(s *session, _ [][]byte) store.Reply {
	if refusal := s.srv.save(); refusal != "" {
		return store.Err(refusal)
	}
	return store.OK
}

// run has the backend run a command of the server's own. Whoever may call DEBUG
// may look at every key, as in Redis.
func (s *session) run(words ...string) store.Reply {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	cmd, _ := s.srv.table.Resolve(args)
	call := cluster.Call{Cmd: cmd, Args: args, DB: int(s.db.Load()), RESP: s.protocol(), User: store.SystemUser}
	return s.srv.backend.Submit([]cluster.Call{call}, nil)[0]
}

// dumpFrame is what DUMP has around the serialized value.
const dumpFrame = 1 + 2 + 8

func doDebugObject(s *session, args [][]byte) store.Reply {
	key := string(args[2])
	encoding, dump := s.run("object", "encoding", key), s.run("dump", key)
	switch {
	case encoding.IsError():
		return encoding
	case dump.IsError():
		return dump
	case encoding.Kind != store.Bulk || dump.Kind != store.Bulk:
		return store.Err(store.ErrNoSuchKey)
	}
	return store.Status(fmt.Sprintf("Value at:0x7f0000000000 refcount:1 encoding:%s serializedlength:%d lru:%d lru_seconds_idle:0",
		encoding.Str, len(dump.Str)-dumpFrame, s.srv.cfg.Clock().Unix()&(1<<24-1)))
}

func doDebugPopulate(s *session, args [][]byte) store.Reply {
	n, ok := store.ParseInt(args[2])
	if !ok || n < 0 {
		return store.Err(errNotPositive)
	}
	prefix, size := "key", int64(-1)
	if len(args) > 3 {
		prefix = string(args[3])
	}
	if len(args) > 4 {
		if size, ok = store.ParseInt(args[4]); !ok || size < 0 {
			return store.Err(errNotPositive)
		}
	}
	var calls []cluster.Call
	cmd := s.srv.table.Lookup([]byte("setnx"))
	for i := range n {
		value := []byte("value:" + strconv.FormatInt(i, 10))
		if size >= 0 {
			sized := make([]byte, size)
			copy(sized, value)
			value = sized
		}
		key := fmt.Appendf(nil, "%s:%d", prefix, i)
		calls = append(calls, cluster.Call{Cmd: cmd, Args: [][]byte{[]byte("setnx"), key, value}, DB: int(s.db.Load()), RESP: s.protocol(), User: store.SystemUser})
		if len(calls) < maxCalls && i+1 < n {
			continue
		}
		for _, r := range s.srv.backend.Submit(calls, nil) {
			if r.IsError() {
				return r
			}
		}
		calls = nil
	}
	return store.OK
}

// doDebugProtocol answers with Redis's example of a type.
func doDebugProtocol(s *session, args [][]byte) store.Reply {
	three := store.List(store.Zero, store.One, store.Int(2))
	truth := func(b bool) store.Reply { return store.Reply{Kind: store.Bool, Int: store.Flag(b).Int} }
	switch strings.ToLower(string(args[2])) {
	case "string":
		return store.Str("Hello World")
	case "integer":
		return store.Int(12345)
	case "double":
		return store.Float(3.141)
	case "bignum":
		return store.Reply{Kind: store.BigNumber, Str: "1234567999999999999999999999999999999"}
	case "null":
		return store.Nil
	case "array":
		return three
	case "set":
		three.Kind = store.Set
		return three
	case "map":
		return store.MapOf(store.Zero, truth(false), store.One, truth(true), store.Int(2), truth(false))
	case "attrib":
		// An attribute may be left out, and Redis leaves it out in RESP2.
		return store.Str("Some real reply following the attribute")
	case "push":
		if s.protocol() == 2 {
			return store.Err(errOnlyRESP3)
		}
		return store.Reply{Kind: store.Push, Elems: []store.Reply{store.Str("server-cpu-usage"), store.Int(42)}}
	case "verbatim":
		return store.Text("This is a verbatim\nstring")
	case "true":
		return truth(true)
	case "false":
		return truth(false)
	}
	return store.Err(errProtocolName)
}
