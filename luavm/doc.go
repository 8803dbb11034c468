// Package luavm evaluates scripts and functions (EVAL, EVALSHA, FCALL, their _RO
// forms, SCRIPT and FUNCTION) in a sandboxed Lua 5.1. redis.call runs commands of
// the server's command table in the script's transaction. Only this package and its
// internal packages import gopher-lua.
//
// Where to look:
//
//	sandbox.go, lib_*.go    what scripts can reach
//	library.go, kept.go     function libraries, and how much memory they keep between calls
//	eval.go, function.go    how a script or a function runs
//	call.go, convert.go     redis.call, and values from and to Lua
//	link.go, fastpath.go    what makes the scripts of locks fast
//	hook.go, concat.go      checks before an instruction
//	limits.go, nesting.go   limits that stop a script
//	protect.go, varinfo.go  errors
//	handler.go              the error handlers of xpcall
//	upvalues.go             what becomes of captured variables when an error ends their calls
//	internal/compile        the compiler
//	internal/ext            cjson, cmsgpack, struct and bit; host.go gives them access to Engine
//	internal/auxlib         how library functions read their arguments and build strings
//	internal/clib           numbers, characters and math as C has them
//	internal/interp         what gopher-lua does not export
//
// Invariants:
//   - A script that is stopped (time, memory, SCRIPT KILL, a fault of the
//     interpreter) leaves no trace: its writes are rolled back, its text is not
//     cached, and the Lua state is thrown away if the stop interrupted Lua. No pcall
//     of the script can catch a stop. If a script ends with an error of its own, its
//     writes stay, as in Redis.
//   - A script leaves nothing behind in the Lua state: globals and libraries are
//     read-only, and settings (of redis.setresp and of cjson) go back to their
//     defaults. Only the state of math.random and the locals of function libraries
//     stay, as in Redis. Code that changes a table for a script first checks whether scripts
//     may change that table (isReadonly): hook.go checks for instructions, writable for Go
//     functions. canary_test.go runs scripts, and compares the shared tables after each.
//   - Compiled scripts and loaded libraries are a cache. The transaction decides which
//     scripts and functions exist, and has their texts, from which any node can compile and
//     load them.
//   - The engine has no clock but Options.Now, and starts no goroutine. Only one
//     goroutine at a time may use it. Any goroutine may call Kill, KillFunction, Abort,
//     Running, RunningFunction, BusyError, BusySince, Kept, TimeLimit and SetTimeLimit
//     at any time.
//
// # How gopher-lua is used
//
// gopher-lua provides the interpreter of instructions and the tables. Everything
// that makes a script behave as on Redis is in this package and its internal packages.
// They have a compiler, because gopher-lua's miscompiles some programs and words its
// errors differently from C Lua's. They have the libraries, which check their arguments
// and print as C Lua's do. The interpreter calls Done of a context before every
// instruction. In Done, hook.go corrects what the interpreter itself does differently:
// numbers joined to strings, numeric for over strings, % and ^, writes to read-only
// tables. The hook needs the current call frame, which gopher-lua does not export;
// internal/interp reads it in memory, and panics at the start of the process if
// gopher-lua lays it out differently.
//
// fastpath.go runs the simplest scripts, such as those of locks, without gopher-lua. As
// soon as anything unusual happens, gopher-lua runs the script from its beginning.
//
// The replies in testdata were recorded from redis-server 7.0.15.
//
// # Differences from Redis 7.0.15 that remain
//
//   - tostring of a table, function or coroutine prints, in place of an address, a number
//     that counts the values that the script has printed in this way.
//   - At run time, +, -, *, /, % and ^ between two numbers never result in -0. Only a constant
//     expression, the unary minus, a library function and arithmetic on numeric strings can.
//   - The last (seventeenth) digit of a result of math may differ from that of
//     Redis's C library; tostring shows fourteen digits.
//   - A metamethod of an operator must be a function; C Lua takes anything that can be called.
//   - A metamethod __unm gets its operand once; C Lua passes it twice.
//   - If a coroutine returns more than 8,000 values, resume raises an error, and the
//     coroutine is dead. In C Lua a script can resume it again, which calls one of the
//     returned values.
//   - For a table with holes, # may return another of its borders than in C Lua. pairs
//     goes in the order of insertion, where C Lua goes in the order of its hash. next
//     does not refuse a key that was never in the table.
//   - Setting an index below 4,194,304 fills the array with nil up to that index,
//     so a sparse array costs memory; a larger index fills nothing. An array of
//     4,194,303 elements is full: a script that adds one more is stopped.
//   - cjson's settings last for one script, not for the life of the server.
//   - string.dump is refused and byte code is not loaded.
//   - A script may be 1 MiB long, and its compiled form may take a quarter of a
//     script's memory. It is compiled in 20 million steps at most: a chain of some
//     6,000 elseif or "or" is "too complex", because the steps to join its jumps grow
//     with the square of its length. Pattern matching may recurse 10,000 levels deep.
//   - A reply may take a quarter of a script's memory (Options.MemoryLimit).
//     redis.log writes 1,024 bytes at most.
//   - collectgarbage does nothing; its option count, and gcinfo, return how much the
//     script has allocated, in KiB.
//   - An uncaught error whose value is a table without err crashes Redis; here the client
//     gets an error.
//   - The locals of a function library are not replicated. Functions run on the leader,
//     with the locals that earlier calls on the same node have left. The locals of all
//     libraries start anew when the node starts, when the Lua state is thrown away because
//     a script or function was stopped, and when more than 1,000 libraries are loaded.
//     When all libraries together keep more than half of a script's memory, the largest
//     ones start anew. The locals of all libraries also start anew when a node begins to lead
//     (Engine.Forget). If a call of a function is undone, or is evaluated again because others of
//     its batch are undone, the locals of its library start anew (Engine.Undo). Data that must
//     last belongs in keys.
//   - All libraries of one FUNCTION RESTORE together may load for as long as a script may
//     run. FUNCTION LIST and FUNCTION DUMP return the libraries in the order of their names.
//   - SCRIPT DEBUG supports only NO. A script is stopped at the limits of Options,
//     which Redis does not have.
package luavm
