package luavm

import (
	"bytes"
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// Commands returns the rows of the command table for the scripting commands.
func (e *Engine) Commands() []store.Command {
	const common = store.NoScript | store.Stale | store.SkipMonitor | store.NoMandatoryKeys | store.MovableKeys | store.Scripting
	rw := []store.KeySpec{{Begin: 2, Step: 1, NumKeys: 2, Flags: store.KeyRW | store.KeyAccess | store.KeyUpdate}}
	ro := []store.KeySpec{{Begin: 2, Step: 1, NumKeys: 2, Flags: store.KeyRO | store.KeyAccess}}
	// The key specs of EVAL assume that the script reads and writes all its keys. The key specs of EVAL_RO assume that it only
	// reads them.
	const notes = "What the script does with its keys is not known."
	rwNoted, roNoted := []store.KeySpec{rw[0]}, []store.KeySpec{ro[0]}
	rwNoted[0].Notes, roNoted[0].Notes = notes, notes
	return append(e.callCommands(common, rwNoted, roNoted), []store.Command{
		{
			Name: "eval", Arity: -3, Flags: common, Keys: rwNoted, Group: "scripting", Since: "2.6.0",
			Summary: "Runs a Lua script in the server.",
			Usage:   "script numkeys [key [key ...]] [arg [arg ...]]",
			Run:     func(c *store.Ctx) store.Reply { return e.evalBody(c, false) },
		},
		{
			Name: "evalsha", Arity: -3, Flags: common, Keys: rw, Group: "scripting", Since: "2.6.0",
			Summary: "Runs a cached Lua script by its SHA-1.",
			Usage:   "sha1 numkeys [key [key ...]] [arg [arg ...]]",
			Run:     func(c *store.Ctx) store.Reply { return e.evalSHA(c, false) },
		},
		{
			Name: "eval_ro", Arity: -3, Flags: common | store.ReadOnly, Keys: roNoted, Group: "scripting", Since: "7.0.0",
			Summary: "Runs a Lua script that may not write.",
			Usage:   "script numkeys [key [key ...]] [arg [arg ...]]",
			Run:     func(c *store.Ctx) store.Reply { return e.evalBody(c, true) },
		},
		{
			Name: "evalsha_ro", Arity: -3, Flags: common | store.ReadOnly, Keys: ro, Group: "scripting", Since: "7.0.0",
			Summary: "Runs a cached Lua script by its SHA-1; it may not write.",
			Usage:   "sha1 numkeys [key [key ...]] [arg [arg ...]]",
			Run:     func(c *store.Ctx) store.Reply { return e.evalSHA(c, true) },
		},
		{
			Name: "script", Arity: -2, Group: "scripting", Since: "2.6.0",
			Summary: "A container for the commands on the script cache.",
			Usage:   "subcommand", Sub: e.scriptCommands(),
		},
	}...)
}

func (e *Engine) scriptCommands() []store.Command {
	const (
		flags = store.NoScript | store.Scripting
		plain = flags | store.NoLua
	)
	return []store.Command{
		{
			Name: "debug", Arity: 3, Flags: plain, Group: "scripting", Since: "3.2.0",
			Summary: "Sets the debug mode of the scripts that follow.",
			Usage:   "YES|SYNC|NO", Run: scriptDebug,
		},
		{
			Name: "exists", Arity: -3, Flags: plain, Group: "scripting", Since: "2.6.0",
			Summary: "Tells which scripts are cached.",
			Tips:    []string{"request_policy:all_shards", "response_policy:agg_logical_and"},
			Usage:   "sha1 [sha1 ...]", Run: scriptExists,
		},
		{
			Name: "flush", Arity: -2, Flags: plain, Group: "scripting", Since: "2.6.0",
			Summary: "Forgets all cached scripts.",
			Tips:    []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			Usage:   "[ASYNC|SYNC]", Run: e.scriptFlush,
		},
		{
			Name: "help", Arity: 2, Flags: store.Loading | store.Stale | store.Scripting | store.NoLua, Group: "scripting", Since: "5.0.0",
			Summary: "Shows the subcommands.", Run: scriptHelp,
		},
		{
			Name: "kill", Arity: 2, Flags: plain | store.AllowBusy, Group: "scripting", Since: "2.6.0",
			Summary: "Stops the script that is running.",
			Tips:    []string{"request_policy:all_shards", "response_policy:one_succeeded"},
			Run:     func(*store.Ctx) store.Reply { return e.Kill() },
		},
		{
			Name: "load", Arity: 3, Flags: flags | store.Stale, Group: "scripting", Since: "2.6.0",
			Summary: "Caches a script.",
			Tips:    []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			Usage:   "script", Run: e.scriptLoad,
		},
	}
}

// keysAndArgs splits the arguments behind numkeys into keys and args; bad is the error if
// numkeys is not a number.
func keysAndArgs(c *store.Ctx, bad store.Error) (keys, args [][]byte, err store.Error) {
	n, ok := redistext.ParseInt(c.Args[2])
	switch {
	case !ok:
		return nil, nil, bad
	case n > int64(len(c.Args)-3):
		return nil, nil, errTooManyKeys
	case n < 0:
		return nil, nil, errNegativeKeys
	}
	return c.Args[3 : 3+n], c.Args[3+n:], ""
}

func (e *Engine) evalBody(c *store.Ctx, readOnly bool) store.Reply {
	keys, args, err := keysAndArgs(c, store.ErrNotInteger)
	if err != "" {
		return store.Err(err)
	}
	// Go copies nothing for a map lookup by string(bytes), so the EVAL of a known script makes no copy of its text.
	chunk, from := e.byBody[string(c.Args[1])], known
	if chunk == nil {
		var fail *store.Reply
		if chunk, from, fail = e.chunkOf(c, c.Arg(1)); fail != nil {
			return *fail
		}
	}
	return e.eval(c, chunk, from, keys, args, readOnly, false)
}

const shaSize = 40

func (e *Engine) evalSHA(c *store.Ctx, readOnly bool) store.Reply {
	if len(c.Args[1]) != shaSize {
		return store.Err(errNoScript)
	}
	keys, args, err := keysAndArgs(c, store.ErrNotInteger)
	if err != "" {
		return store.Err(err)
	}
	chunk := e.bySHA[string(c.Args[1])]
	var name string
	if chunk != nil {
		name = chunk.sha
	} else {
		name = strings.ToLower(string(c.Args[1]))
		chunk = e.bySHA[name]
	}
	// The transaction decides which scripts exist; the compiled ones are only a cache.
	body, ok := c.Script(name)
	if !ok {
		return store.Err(errNoScript)
	}
	from := known
	if chunk == nil {
		var fail *store.Reply
		if chunk, from, fail = e.chunkOf(c, body); fail != nil {
			return *fail
		}
	}
	return e.eval(c, chunk, from, keys, args, readOnly, true)
}

func (e *Engine) scriptLoad(c *store.Ctx) store.Reply {
	chunk, from, fail := e.chunkOf(c, c.Arg(2))
	if fail != nil {
		return *fail
	}
	if from.state&stateKilled != 0 {
		e.stop = msgKilled
		return e.stopped(c)
	}
	c.LoadScript(chunk.sha, chunk.body, c.HasRoomForScript(chunk.sha, chunk.body))
	return store.Str(chunk.sha)
}

// bytesPerStep is how many bytes of work count as one step in store.Ctx.Work.
const bytesPerStep = 64

func scriptExists(c *store.Ctx) store.Reply {
	r := store.Reply{Kind: store.Array}
	for _, sha := range c.Args[2:] {
		c.Work(1 + len(sha)/bytesPerStep)
		_, ok := c.Script(strings.ToLower(string(sha)))
		r.Elems = append(r.Elems, store.Flag(ok))
	}
	return r
}

func (e *Engine) scriptFlush(c *store.Ctx) store.Reply {
	if len(c.Args) > 3 || len(c.Args) == 3 &&
		!bytes.EqualFold(c.Args[2], []byte("sync")) && !bytes.EqualFold(c.Args[2], []byte("async")) {
		return store.Err(errFlushMode)
	}
	c.FlushScripts()
	return store.OK
}

// scriptDebug implements SCRIPT DEBUG. There is no debugger, so only NO succeeds.
func scriptDebug(c *store.Ctx) store.Reply {
	switch strings.ToLower(c.Arg(2)) {
	case "no":
		return store.OK
	case "yes", "sync":
		return store.Err(errDebugger)
	}
	return store.Err(errDebugMode)
}

func scriptHelp(*store.Ctx) store.Reply {
	r := store.Reply{Kind: store.Array}
	for _, line := range []string{
		"SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"DEBUG (YES|SYNC|NO)",
		"    Set the debug mode for subsequent scripts executed.",
		"EXISTS <sha1> [<sha1> ...]",
		"    Return information about the existence of the scripts in the script cache.",
		"FLUSH [ASYNC|SYNC]",
		"    Flush the Lua scripts cache. Very dangerous on replicas.",
		"    When called without the optional mode argument, the behavior is determined by the",
		"    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
		"    * ASYNC: Asynchronously flush the scripts cache.",
		"    * SYNC: Synchronously flush the scripts cache.",
		"KILL",
		"    Kill the currently executing Lua script.",
		"LOAD <script>",
		"    Load a script into the scripts cache without executing it.",
		"HELP",
		"    Prints this help.",
	} {
		r.Elems = append(r.Elems, store.Status(line))
	}
	return r
}
