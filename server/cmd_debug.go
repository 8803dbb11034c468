package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// debugCommand is a subcommand of DEBUG. The fields least and most bound the number of arguments, including DEBUG and the subcommand's
// name.
type debugCommand struct {
	name        string
	least, most int
	usage       string
	summary     string
	do          handler
}

// debugCommands returns the subcommands that test suites of clients use. Some only answer OK, because there is nothing to change here.
func debugCommands() []debugCommand {
	return []debugCommand{
		{"change-repl-id", 2, 2, "", "Does nothing: the log has no other id.", doOK},
		{"digest", 2, 2, "", "Hashes all keys, as Redis does.", doDebugDigest},
		{"digest-value", 2, math.MaxInt, "<key> [<key> ...]", "Hashes the values of keys, as Redis does.", doDebugDigestValue},
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
		{"set-disable-deny-scripts", 3, 3, "<0|1>", "Lets scripts call DEBUG, or no longer.", doDebugInScripts},
		{"set-skip-checksum-validation", 3, 3, "<0|1>", "Does nothing.", doOK},
		{"sleep", 3, 3, "<seconds>", "Holds this connection for a time. Decimals allowed.", doDebugSleep},
	}
}

// notInScripts are the subcommands that scripts may not call: they would wait for the script's end, or could exceed its time limit.
var notInScripts = map[string]bool{"reload": true, "loadaof": true, "populate": true}

func doDebug(s *session, args [][]byte) store.Reply {
	for _, sub := range debugCommands() {
		if strings.EqualFold(sub.name, string(args[1])) && len(args) >= sub.least && len(args) <= sub.most {
			if s.script != nil && notInScripts[sub.name] {
				return store.Err(errDebugNotInScript(sub.name))
			}
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

// scriptNap is the longest DEBUG SLEEP of a script, in seconds. Meanwhile the leader runs no other commands.
const scriptNap = 1

func doDebugInScripts(s *session, args [][]byte) store.Reply {
	s.srv.debugInScripts.Store(string(args[2]) == "1")
	return store.OK
}

// doDebugSleep delays only this connection, or the script that calls it (see scriptNap).
func doDebugSleep(s *session, args [][]byte) store.Reply {
	secs, ok := redistext.ParseFloat(args[2])
	if !ok {
		secs = 0 // as C's strtod does
	}
	most := float64(math.MaxInt32)
	if s.script != nil {
		most = scriptNap
	}
	nap := time.NewTimer(time.Duration(min(max(secs, 0), most) * float64(time.Second)))
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
	// Redis cancels a snapshot in progress; this server waits for it.
	defer s.idle()()
	refusal := s.srv.save()
	for ; refusal == errSaving; refusal = s.srv.save() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.srv.stop:
			return store.Err(refusal)
		}
	}
	if refusal != "" {
		return store.Err(refusal)
	}
	return store.OK
}

// runDebug is the leader's part of DEBUG, for doDebugObject and doDebugPopulate. As in Redis, the right to DEBUG suffices, without
// rights to keys.
func runDebug(c *store.Ctx) store.Reply {
	switch {
	case len(c.Args) == 3 && c.Arg(1) == "object":
		return debugObject(c)
	case len(c.Args) == 6 && c.Arg(1) == "populate":
		return debugPopulate(c)
	}
	return store.Err(errBadCommand)
}

// runAs runs another command as part of the present one. It does not check whether the user may run that command.
func runAs(c *store.Ctx, words ...string) store.Reply {
	inner := *c
	inner.Args = make([][]byte, len(words))
	for i, w := range words {
		inner.Args[i] = []byte(w)
	}
	inner.Cmd, _ = c.Cmd.Table().Resolve(inner.Args)
	return inner.Cmd.Run(&inner)
}

// dumpFrame is how many bytes DUMP adds to the serialized value.
const dumpFrame = 1 + 2 + 8

func doDebugObject(s *session, args [][]byte) store.Reply {
	r := s.onLeader("debug", "object", string(args[2]))
	if r.Kind != store.Array || len(r.Elems) != 2 {
		return r
	}
	return store.Status(fmt.Sprintf("Value at:0x7f0000000000 refcount:1 encoding:%s serializedlength:%d lru:%d lru_seconds_idle:0",
		r.Elems[0].Str, r.Elems[1].Int, s.srv.cfg.Clock().Unix()&(1<<24-1)))
}

// debugObject returns the encoding of a key, and the length of DUMP's reply without the dumpFrame bytes that DUMP adds.
func debugObject(c *store.Ctx) store.Reply {
	encoding, dump := runAs(c, "object", "encoding", c.Arg(2)), runAs(c, "dump", c.Arg(2))
	switch {
	case encoding.IsError():
		return encoding
	case dump.IsError():
		return dump
	case encoding.Kind != store.Bulk || dump.Kind != store.Bulk:
		return store.Err(store.ErrNoSuchKey)
	}
	return store.List(encoding, store.Int(int64(len(dump.Str)-dumpFrame)))
}

// populateStep is how many keys DEBUG POPULATE creates at most by one log entry. populateKey bounds a key's bytes there besides prefix
// and value.
const (
	populateStep = 1024
	populateKey  = 64
)

func doDebugPopulate(s *session, args [][]byte) store.Reply {
	n, ok := redistext.ParseInt(args[2])
	if !ok || n < 0 {
		return store.Err(errNotPositive)
	}
	prefix, size := "key", int64(-1)
	if len(args) > 3 {
		prefix = string(args[3])
	}
	if len(args) > 4 {
		if size, ok = redistext.ParseInt(args[4]); !ok || size < 0 {
			return store.Err(errNotPositive)
		}
	}
	limit := s.srv.backend.MaxEntry()
	each := max(size, 0) + int64(len(prefix)) + populateKey
	if size > limit || each > limit {
		return store.Err(store.ErrEntryTooBig(limit))
	}
	step := min(max(limit/2/each, 1), populateStep)
	for from := int64(0); from < n && s.goesOn(); from += step {
		select {
		case <-s.srv.stop:
			return store.Err(errStopping)
		default:
		}
		to := min(from+step, n)
		if r := s.onLeader("debug", "populate", strconv.FormatInt(from, 10), strconv.FormatInt(to, 10), prefix, strconv.FormatInt(size, 10)); r.IsError() {
			return r
		}
	}
	return store.OK
}

// debugPopulate creates the keys of one step of DEBUG POPULATE: those whose numbers are at least the first argument after "populate"
// and less than the second.
func debugPopulate(c *store.Ctx) store.Reply {
	var n [3]int64
	for i, at := range []int{2, 3, 5} {
		var ok bool
		if n[i], ok = redistext.ParseInt(c.Args[at]); !ok {
			return store.Err(store.ErrNotInteger)
		}
	}
	from, to, size := n[0], min(n[1], n[0]+populateStep), n[2]
	if size > c.MaxEntry() {
		return store.Err(c.ErrTooBig())
	}
	for i := from; i < to; i++ {
		switch {
		case c.OutOfMemory():
			return store.Err(c.ErrNoRoom())
		case c.Overrun() != "":
			return store.Err(c.Overrun())
		}
		value := "value:" + strconv.FormatInt(i, 10)
		if size >= 0 {
			sized := make([]byte, size)
			copy(sized, value)
			value = string(sized)
		}
		if r := runAs(c, "setnx", fmt.Sprintf("%s:%d", c.Arg(4), i), value); r.IsError() {
			return r
		}
	}
	return store.OK
}

// doDebugProtocol answers with Redis's example value of a type.
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
		reply := store.Str("Some real reply following the attribute")
		if s.protocol() == 2 || s.script != nil { // scripts do not see attributes
			return reply
		}
		return store.Reply{Kind: store.Multi, Elems: []store.Reply{
			{Kind: store.Attribute, Elems: []store.Reply{store.Str("key-popularity"), store.List(store.Str("key:123"), store.Int(90))}}, reply}}
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
