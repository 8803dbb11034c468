package luavm

import (
	"fmt"

	"lockstep/store"
)

// Every error text that a client can see and that is not C Lua's own.
const (
	errNoScript     store.Error = "NOSCRIPT No matching script. Please use EVAL."
	errNegativeKeys store.Error = "ERR Number of keys can't be negative"
	errTooManyKeys  store.Error = "ERR Number of keys can't be greater than number of args"
	errFlushMode    store.Error = "ERR SCRIPT FLUSH only support SYNC|ASYNC option"
	errDebugMode    store.Error = "ERR Use SCRIPT DEBUG YES/SYNC/NO"
	errDebugger     store.Error = "ERR the script debugger is not supported"
	errNotBusy      store.Error = "NOTBUSY No scripts in execution right now."
	errUnkillable   store.Error = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command."
	errROScript     store.Error = "ERR Can not execute a script with write flag using *_ro command."
	errReplyDepth   store.Error = "ERR reached lua stack limit"

	errShebang store.Error = "ERR Invalid script shebang"
)

// Texts raised inside scripts; the code ERR is put before them on the way out.
const (
	msgReadonlyTable  = "Attempt to modify a readonly table"
	msgUnknownCommand = "Unknown Redis command called from script"
	msgCommandArity   = "Wrong number of args calling Redis command from script"
	msgNotAllowed     = "This Redis command is not allowed from script"
	msgReadonlyScript = "Write commands are not allowed from read-only scripts."
	msgNoArguments    = "Please specify at least one argument for this redis lib call"
	msgArgumentTypes  = "Lua redis lib command arguments must be strings or integers"
	msgReplyFields    = "wrong number or type of arguments"
	msgArgCount       = "wrong number of arguments"
	msgLogArgs        = "redis.log() requires two arguments or more."
	msgLogLevelType   = "First argument must be a number (log level)."
	msgLogLevel       = "Invalid debug level."
	msgSetrespArgs    = "redis.setresp() requires one argument."
	msgSetrespVersion = "RESP version must be 2 or 3."
	msgSetReplArgs    = "redis.set_repl() requires two arguments."
	msgSetReplFlags   = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."
	msgDeniedCommand  = "The user executing the script can't run this command or subcommand"
	msgDeniedKey      = "The user executing the script can't access at least one of the keys mentioned in the command arguments"
	msgDeniedChannel  = "The user executing the script can't publish to the channel mentioned in the command"
	msgACLCommand     = "Invalid command passed to redis.acl_check_cmd()"
)

// Why a script was stopped. Such a script leaves nothing behind.
const (
	msgKilled = "Script killed by user with SCRIPT KILL..."
	msgTime   = "Script exceeded the time limit (script-time-limit) and was stopped. Nothing that it did was kept."
	msgMemory = "Script exceeded the memory limit and was stopped. Nothing that it did was kept."
	msgFault  = "Script hit an internal fault of the interpreter and was stopped. Nothing that it did was kept."
)

func errCompile(msg string) store.Error {
	return store.Error("ERR Error compiling script (new function): " + msg)
}

func errShebangEngine(engine string) store.Error {
	return store.Error("ERR Unexpected engine in script shebang: " + engine)
}

func errShebangFlag(flag string) store.Error {
	return store.Error("ERR Unexpected flag in script shebang: " + flag)
}

func errShebangOption(option string) store.Error {
	return store.Error("ERR Unknown lua shebang option: " + option)
}

func msgUnknownGlobal(name string) string {
	return "Script attempted to access nonexistent global variable '" + name + "'"
}

// suffix names the script and the line that an error came from.
func suffix(sha, source string, line int) string {
	return fmt.Sprintf(" script: %s, on %s:%d.", sha, source, line)
}
