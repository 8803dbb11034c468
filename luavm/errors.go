package luavm

import (
	"fmt"

	"github.com/lockstep-io/lockstep/store"
)

// These are the errors of the scripting commands.
const (
	errNoScript     store.Error = "NOSCRIPT No matching script. Please use EVAL."
	errNegativeKeys store.Error = "ERR Number of keys can't be negative"
	errTooManyKeys  store.Error = "ERR Number of keys can't be greater than number of args"
	errFlushMode    store.Error = "ERR SCRIPT FLUSH only support SYNC|ASYNC option"
	errDebugMode    store.Error = "ERR Use SCRIPT DEBUG YES/SYNC/NO"
	errDebugger     store.Error = "ERR the script debugger is not supported"
	errUnkillable   store.Error = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command."
	errROScript     store.Error = "ERR Can not execute a script with write flag using *_ro command."
	errReplyDepth   store.Error = "ERR reached lua stack limit"

	errShebang      store.Error = "ERR Invalid script shebang"
	errShebangWords store.Error = "ERR Invalid engine in script shebang"
)

// These are the errors of functions.
const (
	errNoFunction        store.Error = "ERR Function not found"
	errBadKeyCount       store.Error = "ERR Bad number of keys provided"
	errNoLibrary         store.Error = "ERR Library not found"
	errNoMetadata        store.Error = "ERR Missing library metadata"
	errMetadata          store.Error = "ERR Invalid library metadata"
	errNameTwice         store.Error = "ERR Invalid metadata value, name argument was given multiple times"
	errNoName            store.Error = "ERR Library name was not given"
	errBadName           store.Error = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"
	errNoFunctions       store.Error = "ERR No functions registered"
	errRestorePolicy     store.Error = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
	errFunctionFlushMode store.Error = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option"
	errListName          store.Error = "ERR library name argument was not given"
)

// These are the errors of redis.register_function.
const (
	msgRegisterLate          = "redis.register_function can only be called on FUNCTION LOAD command"
	msgRegisterArgs          = "wrong number of arguments to redis.register_function"
	msgRegisterTable         = "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments)."
	msgRegisterName          = "first argument to redis.register_function must be a string"
	msgRegisterCallback      = "second argument to redis.register_function must be a function"
	msgRegisterKey           = "named argument key given to redis.register_function is not a string"
	msgRegisterNamedName     = "function_name argument given to redis.register_function must be a string"
	msgRegisterDescription   = "description argument given to redis.register_function must be a string"
	msgRegisterNamedCallback = "callback argument given to redis.register_function must be a function"
	msgRegisterFlags         = "flags argument to redis.register_function must be a table representing function flags"
	msgRegisterFlag          = "unknown flag given"
	msgRegisterUnknown       = "unknown argument given to redis.register_function"
	msgRegisterNoName        = "redis.register_function must get a function name argument"
	msgRegisterNoCallback    = "redis.register_function must get a callback argument"
	msgRegisterTwice         = "Function already exists in the library"
)

// These texts are raised inside scripts; the code ERR is put before them in the reply.
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

// These texts say why a script was stopped. A stopped script leaves nothing behind.
const (
	msgKilled = "Script killed by user with SCRIPT KILL..."
	msgForNow = "Script was stopped for now." // no client sees it
	msgTime   = "Script exceeded the time limit (script-time-limit) and was stopped. Nothing that it did was kept."
	msgLoad   = "FUNCTION LOAD timeout"
	msgMemory = "Script exceeded the memory limit and was stopped. Nothing that it did was kept."
	msgKept   = "The library kept more memory from call to call than it may, and begins anew. Nothing that this call did was kept."
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

func errCompiledSize(size, limit int64) store.Error {
	return store.Error(fmt.Sprintf("ERR Error compiling script: its compiled forms take %d bytes, more than the %d that they may", size, limit))
}

func errLibraryCompile(msg string) store.Error {
	return store.Error("ERR Error compiling function: " + oneLine(msg))
}

func errRegister(msg string) store.Error {
	return store.Error("ERR Error registering functions: " + oneLine(msg))
}

func errTooManyFunctions() store.Error {
	return errRegister(fmt.Sprintf("ERR a library may have at most %d functions", maxFunctions))
}

func errMetadataValue(word string) store.Error {
	return store.Error("ERR Invalid metadata value given: " + oneLine(word))
}

func errNoEngine(engine string) store.Error {
	return store.Error("ERR Engine '" + oneLine(engine) + "' not found")
}

func errLibraryExists(name string) store.Error {
	return store.Error("ERR Library '" + name + "' already exists")
}

// errLibraryTaken is FUNCTION RESTORE's error for a library that exists already: Redis words it differently from errLibraryExists.
func errLibraryTaken(name string) store.Error {
	return store.Error("ERR Library " + name + " already exists")
}

func errFunctionExists(name string) store.Error {
	return store.Error("ERR Function " + name + " already exists")
}

func errLoadOption(word string) store.Error {
	return store.Error("ERR Unknown option given: " + oneLine(word))
}

func errListArgument(word string) store.Error {
	return store.Error("ERR Unknown argument " + oneLine(word))
}

func errFunctionSyntax(sub string) store.Error {
	return store.Error("ERR unknown subcommand or wrong number of arguments for '" + oneLine(sub) + "'. Try FUNCTION HELP.")
}

func msgUnknownGlobal(name string) string {
	return "Script attempted to access nonexistent global variable '" + name + "'"
}

// suffix returns the end of an error text: it names the script, and the source and line of the error.
func suffix(sha, source string, line int) string {
	return fmt.Sprintf(" script: %s, on %s:%d.", sha, source, line)
}
