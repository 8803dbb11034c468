// Package luavm evaluates scripts and functions: EVAL, EVALSHA, FCALL, their
// _RO forms, SCRIPT and FUNCTION, in a sandboxed Lua 5.1 whose redis.call runs
// the commands of the same table on the same transaction. It and the packages below
// internal alone import gopher-lua.
//
// Where to look:
//
//	sandbox.go, lib_*.go    what scripts can reach
//	library.go, kept.go     function libraries, and how much they keep
//	eval.go, function.go    how a script or a function runs
//	call.go, convert.go     redis.call, and the values that cross the border
//	link.go, fastpath.go    what makes the scripts of locks fast
//	hook.go                 what happens before an instruction
//	limits.go, nesting.go   what ends a script
//	protect.go, varinfo.go  errors
//	internal/compile        the compiler
//	internal/ext            cjson, cmsgpack, struct and bit; host.go is what they see of Engine
//	internal/auxlib         how functions read arguments and collect a text
//	internal/clib           numbers, characters and math as C has them
//	internal/interp         what gopher-lua does not export
//
// Invariants:
//   - A script that is stopped (time, memory, SCRIPT KILL, a fault of the
//     interpreter) leaves no trace: its writes are rolled back, its text is not
//     cached, the Lua state is thrown away. No pcall of the script survives a
//     stop. An error of the script's own keeps what it wrote, as in Redis.
//   - Nothing of a script survives it: globals and libraries are read-only, and
//     settings (redis.setresp, those of cjson) go back to their defaults. Only
//     the state of math.random goes on, and the locals of function libraries, as
//     in Redis. Whatever writes for a script asks refuseReadonly, of the table in
//     which the write lands: the instructions in hook.go, and functions by
//     writable. canary_test.go walks what scripts share, after every script.
//   - What is compiled or loaded is a cache. Which scripts and functions exist,
//     the transaction decides; any node can make them from their texts.
//   - The engine has no clock and no goroutine. It is used by one goroutine at a
//     time, except for Kill, KillFunction, Abort, Running, RunningFunction,
//     BusyError, BusySince, TimeLimit and SetTimeLimit.
//
// # How gopher-lua is used
//
// It gives the interpreter of instructions and the tables. Everything that
// decides whether a script behaves as on Redis is here: the compiler, because
// gopher-lua's miscompiles some programs and words its errors differently, and
// the libraries, which check their arguments and print as C Lua's do. A context
// whose Done is called before every instruction (hook.go) corrects what is left:
// numbers joined to strings, numeric for over strings, % and ^, writes to read-only
// tables. It needs the current call frame, which gopher-lua does not export;
// internal/interp reads it in place and refuses to start with another layout.
//
// The simplest scripts, which are those of locks, run their instructions in
// fastpath.go, and are left to gopher-lua when anything out of the ordinary happens.
//
// The replies in testdata were recorded from redis-server 7.0.15.
//
// # Differences from Redis 7.0.15 that remain
//
//   - tostring of a table, function or coroutine prints a number counted from
//     the start of the script in place of an address.
//   - The result of an operation is never -0 (a constant -0 is).
//   - The last digit of a function of math may be another than that of Redis's C
//     library, which is the seventeenth: tostring shows fourteen.
//   - A metamethod __unm gets its operand once, from C Lua twice.
//   - The length of a table with holes may be another of its borders; the order
//     of pairs is that of insertion, where C Lua's is that of its hash; next
//     does not refuse a key that was never in the table.
//   - An array fills with nil up to an index below 4,194,304 that is set, so a
//     sparse table of numbers costs memory; larger indexes do not.
//   - cjson's settings last for one script, not for the life of the server.
//   - string.dump is refused and byte code is not loaded.
//   - A script may be 1 MiB long. Patterns are matched to a depth of 10,000.
//   - A reply may take a quarter of a script's memory (Options.MemoryLimit).
//     redis.log writes 1,024 bytes at most.
//   - collectgarbage does nothing; count and gcinfo tell what the script
//     allocated.
//   - error with a table that has no err crashes Redis; here it is an error.
//   - The locals of a function library live where its functions run, on the
//     leader. They start anew when another node leads, when a script or
//     function is stopped, or when all libraries together keep more than half of a
//     script's memory (those that keep most), and they count changes of calls that are evaluated
//     again because leadership was in doubt. What must last belongs into keys.
//   - All libraries of FUNCTION RESTORE together may load for as long as a
//     script may run. FUNCTION LIST and DUMP go by name.
//   - SCRIPT DEBUG knows only NO. A script is stopped at the limits of Options,
//     which Redis does not have.
package luavm
