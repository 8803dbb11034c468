package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Error is an error for the client, in Redis's exact words if Redis has it. The encoder adds the leading '-'.
type Error string

func (e Error) Error() string { return string(e) }

// RedisVersion is the version reported to clients and scripts. A newer version would make some
// clients use commands that this server lacks.
const (
	RedisVersion    = "7.2.4"
	RedisVersionNum = 0x00070204
)

// Error replies with a fixed text.
const (
	ErrWrongType       Error = "WRONGTYPE Operation against a key holding the wrong kind of value"
	ErrSyntax          Error = "ERR syntax error"
	ErrNoSuchKey       Error = "ERR no such key"
	ErrNotInteger      Error = "ERR value is not an integer or out of range"
	ErrNotFloat        Error = "ERR value is not a valid float"
	ErrOverflow        Error = "ERR increment or decrement would overflow"
	ErrDecrOverflow    Error = "ERR decrement would overflow"
	ErrNaNOrInf        Error = "ERR increment would produce NaN or Infinity"
	ErrOffset          Error = "ERR offset is out of range"
	ErrStringSize      Error = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	ErrNotPositive     Error = "ERR value is out of range, must be positive"
	ErrValueRange      Error = "ERR value is out of range"
	ErrHashNotInteger  Error = "ERR hash value is not an integer"
	ErrHashNotFloat    Error = "ERR hash value is not a float"
	ErrCursor          Error = "ERR invalid cursor"
	ErrDBIndex         Error = "ERR DB index is out of range"
	ErrFirstDB         Error = "ERR invalid first DB index"
	ErrSecondDB        Error = "ERR invalid second DB index"
	ErrSameObject      Error = "ERR source and destination objects are the same"
	ErrNXAndOther      Error = "ERR NX and XX, GT or LT options at the same time are not compatible"
	ErrGTAndLT         Error = "ERR GT and LT options at the same time are not compatible"
	ErrNotAFloat       Error = "ERR value is NaN or Infinity"
	ErrNumKeys         Error = "ERR numkeys should be greater than 0"
	ErrFlushMode       Error = "ERR FLUSHALL only support SYNC|ASYNC option"
	ErrLFUOff          Error = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
	ErrLCSType         Error = "ERR The specified keys must contain string values"
	ErrLCSLenAndIdx    Error = "ERR If you want both the length and indexes, please just use IDX."
	ErrLCSMemory       Error = "ERR Insufficient memory, failed allocating transient memory for LCS"
	ErrIndexRange      Error = "ERR index out of range"
	ErrCountPositive   Error = "ERR count should be greater than 0"
	ErrRankZero        Error = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list"
	ErrCountNegative   Error = "ERR COUNT can't be negative"
	ErrMaxLen          Error = "ERR MAXLEN can't be negative"
	ErrLimitNegative   Error = "ERR LIMIT can't be negative"
	ErrTooManyKeys     Error = "ERR Number of keys can't be greater than number of args"
	ErrTimeoutNotFloat Error = "ERR timeout is not a float or out of range"
	ErrTimeoutNegative Error = "ERR timeout is negative"
	ErrScoreRange      Error = "ERR min or max is not a float"
	ErrLexRange        Error = "ERR min or max not valid string range item"
	ErrNXAndXX         Error = "ERR XX and NX options at the same time are not compatible"
	ErrGTLTNX          Error = "ERR GT, LT, and/or NX options at the same time are not compatible"
	ErrIncrPairs       Error = "ERR INCR option supports a single increment-element pair"
	ErrScoreNaN        Error = "ERR resulting score is not a number (NaN)"
	ErrLimitByRank     Error = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
	ErrScoresByLex     Error = "ERR syntax error, WITHSCORES not supported in combination with BYLEX"
	ErrWeight          Error = "ERR weight value is not a float"
	ErrSortScore       Error = "ERR One or more scores can't be converted into double"
	ErrUsersChanged    Error = "TRYAGAIN The users have changed, and this node does not know yet whether the connection is of the present user"
	ErrBusyKey         Error = "BUSYKEY Target key name already exists."
	ErrRestoreTTL      Error = "ERR Invalid TTL value, must be >= 0"
	ErrIdleTime        Error = "ERR Invalid IDLETIME value, must be >= 0"
	ErrFreq            Error = "ERR Invalid FREQ value, must be >= 0 and <= 255"
	ErrDumpChecksum    Error = "ERR DUMP payload version or checksum are wrong"
	ErrDumpFormat      Error = "ERR Bad data format"
	ErrDumpLibrary     Error = "ERR Failed loading library payload"
	ErrDumpLibraryName Error = "ERR Failed loading library name"
	ErrDumpEngine      Error = "ERR Failed loading engine name"
	ErrDumpDescription Error = "ERR Failed loading library description"
	ErrDumpBlob        Error = "ERR Failed loading library blob"
	ErrDumpNoFunction  Error = "ERR given type is not a function"
	ErrBitOffset       Error = "ERR bit offset is not an integer or out of range"
	ErrBit             Error = "ERR bit is not an integer or out of range"
	ErrBitArgument     Error = "ERR The bit argument must be 1 or 0."
	ErrBitOpNot        Error = "ERR BITOP NOT must be called with a single source key."
	ErrBitOverflow     Error = "ERR Invalid OVERFLOW type specified"
	ErrBitType         Error = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
	ErrBitFieldRO      Error = "ERR BITFIELD_RO only supports the GET subcommand"
	ErrNoAuth          Error = "NOAUTH Authentication required."
	ErrNoPermKey       Error = "NOPERM this user has no permissions to access one of the keys used as arguments"
	ErrNoPermChannel   Error = "NOPERM this user has no permissions to access one of the channels used as arguments"
	ErrUndecided       Error = "ERR the rights to so many keys or channels take too long to check: name fewer of them, or let the user's patterns be names or end with their only star"
	ErrSortBy          Error = "ERR BY option of SORT denied due to insufficient ACL permissions."
	ErrSortGet         Error = "ERR GET option of SORT denied due to insufficient ACL permissions."
	ErrNotBusy         Error = "NOTBUSY No scripts in execution right now."
	ErrBusyScript      Error = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
	ErrBusyFunction    Error = "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
	ErrQuota           Error = "OOM command not allowed when the data directory of the leader is larger than its quota: delete keys, or restart the nodes with a larger --quota-data-dir."
	ErrOutOfMemory     Error = "OOM command not allowed when used memory > 'maxmemory'."
)

// Errors of the commands for locks.
const (
	ErrToken               Error = "ERR a token is an integer from 0 to 9223372036854775807"
	ErrWhichOwner          Error = "LOCKMODE each holder of this lock has a token of its own: name one with OWNER"
	ErrNoTokens            Error = "ERR tokens are not counted while a node of the cluster may run version 0.1.0: upgrade all nodes first"
	ErrNoOwner             Error = "ERR the owner must not be empty"
	ErrLockName            Error = "ERR the name and the owner of a lock with WAIT, SHARED, LIMIT, MAXHOLD or DELAY have at most 1024 bytes each"
	ErrWaitNotInteger      Error = "ERR timeout is not an integer or out of range"
	ErrNoSession           Error = "ERR SESSION is not for transactions and scripts: send LOCK.ACQUIRE by itself"
	ErrShortSession        Error = "ERR SESSION needs a lease of 3000 ms or more (PX, MAXHOLD), because the node renews such locks once a second"
	ErrSharedAndLimit      Error = "LOCKMODE SHARED and LIMIT exclude each other: any number may share a lock, or LIMIT says how many"
	ErrPermitsWithoutLimit Error = "LOCKMODE PERMITS needs LIMIT, which says how many permits the lock has"
	ErrLockLimit           Error = "ERR LIMIT is an integer from 1 to 9007199254740992"
	ErrLockPermits         Error = "ERR PERMITS is an integer from 1 to LIMIT"
	ErrLockDelay           Error = "ERR DELAY is an integer from 0 to 3600000, in milliseconds"
	ErrQueueWait           Error = "ERR QUEUE needs WAIT, which says for how long the ticket is valid"
	ErrQueueSession        Error = "ERR QUEUE and SESSION exclude each other: after the message, renew the lock yourself (LOCK.RENEW)"
	ErrLockPlain           Error = "LOCKMODE the owner holds this lock as a plain lock, which is not REENTRANT: release it first"
	ErrLockReentrant       Error = "LOCKMODE the owner holds this lock as a REENTRANT one, not as a plain lock: take it once more with REENTRANT, or release it first"
	ErrLockOther           Error = "LOCKMODE the owner holds a lock of another kind at this key: renew and release it by the library that took it"
	ErrNoLock              Error = "LOCKMODE the key is no lock that the server knows: DEL deletes it"
	ErrLockListInside      Error = "ERR SORT and CLIENT of LOCK.LIST do not work in a script or a transaction, because they need other nodes"
	ErrLockKind            Error = "ERR KIND is plain, shedlock, reentrant, exclusive, shared, limit, redisson, redisson-fair, redisson-fenced, redisson-readwrite, redisson-group, redisson-semaphore, redisson-latch or symfony"
	ErrLockAnonymous       Error = "LOCKMODE nothing says who has the permits of this semaphore, or it has given none: INCRBY and PUBLISH give permits back, as its release does"
	ErrLockForm            Error = "LOCKMODE the owner holds this lock in another form: release it first"
	ErrLockHolds           Error = "LOCKMODE the owner holds this lock more than once, or not alone: it can share it only while it holds it once"
	ErrLockEndless         Error = "LOCKMODE the owner holds this lock without a time to live: release it first, or give it one (PEXPIRE)"
	ErrLockUpgrade         Error = "LOCKMODE the owner shares this lock: release it, then take it exclusively"
	ErrLockOtherPermits    Error = "LOCKMODE the owner holds another number of PERMITS of this lock"
	ErrLockExpires         Error = "LOCKMODE each holder of this lock has a lease of its own: use LOCK.RENEW or LOCK.RELEASE, or DEL, which ends them all"
	ErrLockMoves           Error = "LOCKMODE this lock has holders with leases of their own, who know it by its name: it cannot be renamed, moved, copied or dumped"
)

// ErrArgumentsTooBig is the reply to a read-only command or a WATCH whose arguments exceed limit bytes, the limit for the writes of
// a command.
func ErrArgumentsTooBig(limit int64) Error {
	return Error("ERR the arguments of one command may have at most " + strconv.FormatInt(limit, 10) +
		" bytes, and these have more: send fewer at once, or raise " + ParamMaxEntry + " (CONFIG SET)")
}

// ErrEntryTooBig is the reply to a command, script or transaction that would write more bytes than limit (max-entry-size).
func ErrEntryTooBig(limit int64) Error {
	return Error("ERR one command, script or transaction may write at most " + strconv.FormatInt(limit, 10) +
		" bytes, and this one would write more: write less at once, or raise " + ParamMaxEntry + " (CONFIG SET)")
}

// ErrTooMuchCode is the reply to a command that loads functions, if the loaded scripts and functions together would take more than
// their share of maxmemory (codeShare).
const ErrTooMuchCode Error = "OOM loaded scripts and functions may take a quarter of 'maxmemory': drop some (SCRIPT FLUSH, FUNCTION DELETE), or raise it"

// ErrTooLong is the reply to a command that is too long to be sent to the leader.
func (c *Command) ErrTooLong(limit int64) Error {
	if c.Is(ReadOnly) {
		return ErrArgumentsTooBig(limit)
	}
	return ErrEntryTooBig(limit)
}

// ErrReplyTooBig is the reply to a command whose reply would exceed the limit.
func ErrReplyTooBig(limit int64) Error {
	return Error("ERR the reply would be larger than " + strconv.FormatInt(limit, 10) + " bytes: ask for less at once (a range, COUNT, SCAN)")
}

// ErrInvalidExpire is the reply to a time to live that is not positive or is out of range. The argument command is
// the command's full name.
func ErrInvalidExpire(command string) Error {
	return Error("ERR invalid expire time in '" + command + "' command")
}

// ErrWrongArgs is the reply to a wrong number of arguments. name is the full name in lower case
// ("get", "config|get").
func ErrWrongArgs(name string) Error {
	return Error("ERR wrong number of arguments for '" + name + "' command")
}

// Errors in an ACL file. As in Redis, most begin with the path and the line.
const (
	faultFileUser     = "%s:%d should start with user keyword followed by the username"
	faultFileName     = "'%s:%d: username '%.200s' contains invalid characters"
	faultFileLongName = "%s:%d: the name of a user may have at most %d bytes"
	faultFileTwice    = "WARNING: Duplicate user '%.200s' found on line %d"
	faultFileUsers    = "%s:%d: there may be at most %d users"
	faultFileSize     = "%s: the users would take more than %d MiB: give them fewer and shorter rules"
	faultFileRules    = "%s:%d: a user may have at most %d rules"
	faultFileSelector = "%s:%d: Unmatched parenthesis in selector definition"
	faultFileRule     = "%s:%d: Error in applying operation '%.200s': %s"
	faultFileLine     = "%s:%d: %s"
	faultFileKept     = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
)

// ErrExecAbort is the reply to an EXEC that was refused; the transaction is discarded. The argument why is the reason.
func ErrExecAbort(why Error) Error {
	return Error("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(string(why), "ERR "))
}

// ErrNoPermCommand is the reply to a command that the user may not run. name is its full name.
func ErrNoPermCommand(name string) Error {
	return Error("NOPERM this user has no permissions to run the '" + name + "' command")
}

// ErrExecPerm is the reply to a queued command that the user may no longer run.
func ErrExecPerm(reason string) Error {
	return Error("NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: " + reason)
}

// ErrACLModifier is the reply to a faulty rule of ACL SETUSER.
func ErrACLModifier(rule, fault string) Error {
	return Error("ERR Error in ACL SETUSER modifier '" + oneLine(rule) + "': " + fault)
}

// The replies to a command that would exceed one of the bounds in acl_bounds.go.
const (
	ErrUserName  Error = "ERR The name of a user may have at most 1024 bytes: choose a shorter one"
	ErrUsers     Error = "ERR There may be at most 10000 users: delete some that are not used (ACL DELUSER), or let several clients be one user"
	ErrUserRules Error = "ERR A user may have at most 4096 rules (patterns, passwords, commands, 3 for a selector): give patterns that match more, or several users"
	ErrUsersSize Error = "ERR All users together would take more than 32 MiB: delete some (ACL DELUSER), or give them fewer and shorter rules"
)

// ErrNoInputKey is the reply to a command that combines sorted sets, if its number of keys is less than 1.
func ErrNoInputKey(command string) Error {
	return Error("ERR at least 1 input key is needed for '" + command + "' command")
}

// ErrUnsupportedOption is EXPIRE's reply to an unknown option.
func ErrUnsupportedOption(opt string) Error {
	return Error("ERR Unsupported option " + oneLine(opt))
}

// ErrIntRange is the reply to an integer outside the allowed range.
func ErrIntRange(low, high int64) Error {
	return Error("ERR value is out of range, value must between " +
		strconv.FormatInt(low, 10) + " and " + strconv.FormatInt(high, 10))
}

// oneLine makes a client's text fit for an error line, as Redis does: it ends at a NUL and has no line breaks.
func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return lineBreaks.Replace(strings.TrimRight(s, "\r\n"))
}

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")

// ShortLimit returns a sentence, for an error, if earlier work had used a tenth or more of the time limit full; 0 means no limit.
func ShortLimit(full, had time.Duration) string {
	if full == 0 || had > full-full/10 {
		return ""
	}
	return fmt.Sprintf(" It had %v of %v, because earlier work of this user or of others had used up the rest.", max(had, 0).Round(time.Millisecond), full)
}

// errLockMode is the reply to a LOCK.ACQUIRE that shares a lock in another way than its holders.
func errLockMode(m lockMode) Error {
	if n, ok := m.limit(); ok {
		return Error("LOCKMODE this lock has been taken with LIMIT " + strconv.FormatInt(n, 10) + ": all must name the same limit")
	}
	return "LOCKMODE this lock has been taken with SHARED"
}
