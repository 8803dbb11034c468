package luavm

import (
	"math"
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// callCommands returns the rows of FCALL, FCALL_RO and FUNCTION.
func (e *Engine) callCommands(flags store.Flags, rw, ro []store.KeySpec) []store.Command {
	const usage = "function numkeys [key [key ...]] [arg [arg ...]]"
	return []store.Command{
		{
			Name: "fcall", Arity: -3, Flags: flags, Keys: rw, Group: "scripting", Since: "7.0.0",
			Summary: "Calls a function.", Usage: usage,
			Run: func(c *store.Ctx) store.Reply { return e.fcall(c, false) },
		},
		{
			Name: "fcall_ro", Arity: -3, Flags: flags | store.ReadOnly, Keys: ro, Group: "scripting", Since: "7.0.0",
			Summary: "Calls a function that may not write.", Usage: usage,
			Run: func(c *store.Ctx) store.Reply { return e.fcall(c, true) },
		},
		{
			Name: "function", Arity: -2, Group: "scripting", Since: "7.0.0",
			Summary: "A container for the commands on function libraries.",
			Usage:   "subcommand", Sub: e.functionCommands(),
		},
	}
}

func (e *Engine) functionCommands() []store.Command {
	const (
		flags = store.NoScript | store.Scripting
		plain = flags | store.NoLua
		write = flags | store.Write
	)
	row := func(name string, arity int, flags store.Flags, usage, summary string, run store.Handler, tips ...string) store.Command {
		return store.Command{Name: name, Arity: arity, Flags: flags, Group: "scripting", Since: "7.0.0",
			Usage: usage, Summary: summary, Tips: tips, Run: run}
	}
	const shards, all = "request_policy:all_shards", "response_policy:all_succeeded"
	return []store.Command{
		row("delete", 3, plain|store.Write, "library-name", "Deletes a library.", e.functionDelete, shards, all),
		row("dump", 2, plain, "", "Returns all libraries in a serialized form.", functionDump),
		row("flush", -2, plain|store.Write, "[ASYNC|SYNC]", "Deletes all libraries.", e.functionFlush, shards, all),
		row("help", 2, store.Loading|store.Stale|store.Scripting|store.NoLua, "", "Shows the subcommands.", functionHelp),
		row("kill", 2, plain|store.AllowBusy, "", "Stops the function that is running.",
			func(*store.Ctx) store.Reply { return e.KillFunction() }, shards, "response_policy:one_succeeded"),
		row("list", -2, plain, "[LIBRARYNAME library-name-pattern] [WITHCODE]", "Describes the libraries.",
			functionList, "nondeterministic_output_order"),
		row("load", -3, write|store.DenyOOM, "[REPLACE] function-code", "Creates a library.", e.functionLoad, shards, all),
		row("restore", -3, write|store.DenyOOM, "serialized-value [FLUSH|APPEND|REPLACE]",
			"Creates libraries from their serialized form.", e.functionRestore, shards, all),
		row("stats", 2, plain|store.AllowBusy, "", "Describes the function that is running, and the engines.",
			func(c *store.Ctx) store.Reply {
				libraries, functions := c.CountLibraries()
				return functionStats(libraries, functions, store.Nil)
			},
			"nondeterministic_output", shards, "response_policy:special"),
	}
}

func (e *Engine) functionDelete(c *store.Ctx) store.Reply {
	name := c.Arg(2)
	if c.Library(name) == nil {
		return store.Err(errNoLibrary)
	}
	c.DeleteLibrary(name)
	delete(e.libs, name)
	return store.OK
}

func functionDump(c *store.Ctx) store.Reply {
	dump, ok := c.DumpLibraries()
	if !ok {
		return store.Err(c.ErrReply())
	}
	return store.Str(dump)
}

func (e *Engine) functionFlush(c *store.Ctx) store.Reply {
	if len(c.Args) > 3 {
		return store.Err(errFunctionSyntax(c.Arg(1)))
	}
	if len(c.Args) == 3 {
		if mode := strings.ToLower(c.Arg(2)); mode != "sync" && mode != "async" {
			return store.Err(errFunctionFlushMode)
		}
	}
	c.FlushLibraries()
	e.forget()
	return store.OK
}

func functionList(c *store.Ctx) store.Reply {
	pattern, filtered, code := "", false, false
	for i := 2; i < len(c.Args); i++ {
		switch word := c.Arg(i); {
		case !code && strings.EqualFold(word, "withcode"):
			code = true
		case !filtered && strings.EqualFold(word, "libraryname"):
			if i++; i == len(c.Args) {
				return store.Err(errListName)
			}
			pattern, filtered = c.Arg(i), true
		default:
			return store.Err(errListArgument(word))
		}
	}
	r := store.Reply{Kind: store.Array}
	limit := int(c.MaxReply())
	left := limit
	for _, lib := range c.Libraries() {
		if filtered && !matches(c, pattern, lib.Name) {
			continue
		}
		c.Work(1 + len(lib.Functions))
		fields := []store.Reply{
			store.Str("library_name"), store.Str(lib.Name),
			store.Str("engine"), store.Str(libraryEngine),
			store.Str("functions"), describe(lib.Functions),
		}
		if code {
			fields = append(fields, store.Str("library_code"), store.Str(lib.Code))
		}
		r.Elems = append(r.Elems, store.MapOf(fields...))
		if left -= store.Extent(r.Elems[len(r.Elems)-1:], limit); left < 0 {
			return store.Err(c.ErrReply())
		}
	}
	return r
}

// matches reports whether a name matches a pattern. The steps of the match are work of the command.
func matches(c *store.Ctx, pattern, name string) bool {
	ok, steps := redistext.MatchFoldWithin(pattern, name, math.MaxInt)
	c.Work(1 + len(name)/bytesPerStep + steps)
	return ok
}

func describe(functions []store.Function) store.Reply {
	r := store.Reply{Kind: store.Array}
	for _, f := range functions {
		description := store.Nil
		if f.Described {
			description = store.Str(f.Description)
		}
		flags := store.Reply{Kind: store.Set}
		for _, name := range f.Flags.Names() {
			flags.Elems = append(flags.Elems, store.Status(name))
		}
		r.Elems = append(r.Elems, store.MapOf(store.Str("name"), store.Str(f.Name),
			store.Str("description"), description, store.Str("flags"), flags))
	}
	return r
}

func functionHelp(*store.Ctx) store.Reply {
	r := store.Reply{Kind: store.Array}
	for line := range strings.SplitSeq(functionHelpText, "\n") {
		r.Elems = append(r.Elems, store.Status(line))
	}
	return r
}

const functionHelpText = `FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
LOAD [REPLACE] <FUNCTION CODE>
    Create a new library with the given library name and code.
DELETE <LIBRARY NAME>
    Delete the given library.
LIST [LIBRARYNAME PATTERN] [WITHCODE]
    Return general information on all the libraries:
    * Library name
    * The engine used to run the Library
    * Library description
    * Functions list
    * Library code (if WITHCODE is given)
    It also possible to get only function that matches a pattern using LIBRARYNAME argument.
STATS
    Return information about the current function running:
    * Function name
    * Command used to run the function
    * Duration in MS that the function is running
    If no function is running, return nil
    In addition, returns a list of available engines.
KILL
    Kill the current running function.
FLUSH [ASYNC|SYNC]
    Delete all the libraries.
    When called without the optional mode argument, the behavior is determined by the
    lazyfree-lazy-user-flush configuration directive. Valid modes are:
    * ASYNC: Asynchronously flush the libraries.
    * SYNC: Synchronously flush the libraries.
DUMP
    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command
RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]
    Restore the libraries represented by the given payload, it is possible to give a restore policy to
    control how to handle existing libraries (default APPEND):
    * FLUSH: delete all existing libraries.
    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.
    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old
      libraries with the new libraries (notice that even on this option there is a chance of failure
      in case of functions name collision with another library).
HELP
    Prints this help.`
