package luavm

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/store"
)

var redisLibrary = library{
	"acl_check_cmd":      (*Engine).redisACLCheck,
	"breakpoint":         (*Engine).redisBreakpoint,
	"call":               func(e *Engine, L *lua.LState) int { return e.redisCall(L, true) },
	"debug":              func(*Engine, *lua.LState) int { return 0 },
	"error_reply":        (*Engine).redisErrorReply,
	"log":                (*Engine).redisLog,
	"pcall":              func(e *Engine, L *lua.LState) int { return e.redisCall(L, false) },
	"replicate_commands": (*Engine).redisReplicate,
	"set_repl":           (*Engine).redisSetRepl,
	"setresp":            (*Engine).redisSetResp,
	"sha1hex":            (*Engine).redisSHA1,
	"status_reply":       (*Engine).redisStatusReply,
}

// These are the log levels of redis.log.
const (
	logDebug = iota
	logVerbose
	logNotice
	logWarning
)

var redisConstants = map[string]lua.LValue{
	"LOG_DEBUG":         lua.LNumber(logDebug),
	"LOG_VERBOSE":       lua.LNumber(logVerbose),
	"LOG_NOTICE":        lua.LNumber(logNotice),
	"LOG_WARNING":       lua.LNumber(logWarning),
	"REPL_NONE":         lua.LNumber(0),
	"REPL_AOF":          lua.LNumber(1),
	"REPL_SLAVE":        lua.LNumber(2),
	"REPL_REPLICA":      lua.LNumber(2),
	"REPL_ALL":          lua.LNumber(3),
	"REDIS_VERSION":     lua.LString(store.RedisVersion),
	"REDIS_VERSION_NUM": lua.LNumber(store.RedisVersionNum),
}

func (e *Engine) openRedis() {
	t := e.lib("redis")
	for name, v := range redisConstants {
		t.RawSetString(name, v)
	}
}

// errorTable returns the table that scripts get for an error, as in Redis.
func (e *Engine) errorTable(L *lua.LState, text string) *lua.LTable {
	e.charge(2 * int64(len(text))) // for the text that errorTable makes, and for the parameter text, which the caller may have made
	code, msg := "ERR", text
	if rest, told := strings.CutPrefix(text, "-"); told {
		var coded bool
		if code, msg, coded = strings.Cut(rest, " "); !coded {
			code, msg = "ERR", rest
		}
	}
	text = code + " " + strings.Trim(msg, "\r\n")
	return e.record(L, "err", lua.LString(text))
}

// raise raises an error of a function in the table redis; the value of the error is a table.
func (e *Engine) raise(L *lua.LState, text string) { e.throwValue(L, e.errorTable(L, text)) }

// oneString returns the argument of error_reply or status_reply, or pushes an error table, which the two functions return.
func (e *Engine) oneString(L *lua.LState) (string, bool) {
	s, ok := L.Get(1).(lua.LString)
	if L.GetTop() != 1 || !ok {
		L.Push(e.errorTable(L, msgReplyFields))
		return "", false
	}
	e.pass(len(s))
	text, _, _ := strings.Cut(string(s), "\x00")
	return text, true
}

func (e *Engine) redisErrorReply(L *lua.LState) int {
	s, ok := e.oneString(L)
	if ok {
		if !strings.HasPrefix(s, "-") {
			s = e.paste("-", s)
		}
		L.Push(e.errorTable(L, s))
	}
	return 1
}

func (e *Engine) redisStatusReply(L *lua.LState) int {
	if _, ok := e.oneString(L); ok {
		L.Push(e.record(L, "ok", L.Get(1)))
	}
	return 1
}

func (e *Engine) redisSHA1(L *lua.LState) int {
	if L.GetTop() != 1 {
		e.raise(L, msgArgCount)
	}
	s, _ := auxlib.ToString(L.Get(1))
	e.work(len(s) / 16)
	e.charge(int64(len(s)) + shaCost)
	L.Push(lua.LString(scriptSHA(s)))
	return 1
}

// shaCost is the number of bytes charged for computing a hash and for its text, besides a copy of the hashed string.
const shaCost = 160

func scriptSHA(body string) string {
	sum := sha1.Sum([]byte(body))
	return hex.EncodeToString(sum[:])
}

// maxLogText is the largest number of bytes of a text that a script can log: Redis's LOG_MAX_LEN.
const maxLogText = 1024

// logText joins the arguments of redis.log after the level, up to maxLogText bytes. It leaves out
// arguments that are neither strings nor numbers.
func logText(L *lua.LState) string {
	var b strings.Builder
	words := 0
	for i := 2; i <= L.GetTop() && b.Len() < maxLogText; i++ {
		s, ok := auxlib.ToString(L.Get(i))
		if !ok {
			continue
		}
		if words++; words > 1 {
			b.WriteByte(' ')
		}
		b.WriteString(s[:min(len(s), maxLogText-b.Len())])
	}
	return b.String()
}

func (e *Engine) redisLog(L *lua.LState) int {
	if L.GetTop() < 2 {
		e.raise(L, msgLogArgs)
	}
	n, ok := e.arg.ToNumber(L.Get(1))
	if !ok {
		e.raise(L, msgLogLevelType)
	}
	level := clib.ToInt(n)
	if level < logDebug || level > logWarning {
		e.raise(L, msgLogLevel)
	}
	e.work(callSteps)
	e.log(level, logText(L))
	return 0
}

func (e *Engine) redisSetResp(L *lua.LState) int {
	if L.GetTop() != 1 {
		e.raise(L, msgSetrespArgs)
	}
	n, _ := e.arg.ToNumber(L.Get(1))
	if v := clib.ToInt(n); v != 2 && v != 3 {
		e.raise(L, msgSetrespVersion)
	}
	e.resp = clib.ToInt(n)
	return 0
}

// redisSetRepl only checks its argument: whatever the script asks for, all writes of a script that takes effect are replicated.
func (e *Engine) redisSetRepl(L *lua.LState) int {
	if L.GetTop() != 1 {
		e.raise(L, msgSetReplArgs)
	}
	n, _ := e.arg.ToNumber(L.Get(1))
	if clib.ToInt(n)&^3 != 0 {
		e.raise(L, msgSetReplFlags)
	}
	return 0
}

func (e *Engine) redisReplicate(L *lua.LState) int {
	L.Push(lua.LTrue)
	return 1
}

func (e *Engine) redisBreakpoint(L *lua.LState) int {
	L.Push(lua.LFalse)
	return 1
}

func (e *Engine) redisACLCheck(L *lua.LState) int {
	if L.GetTop() == 0 {
		e.raise(L, msgNoArguments)
	}
	args, ok := e.arguments(L)
	if !ok {
		e.raise(L, msgArgumentTypes)
	}
	e.work(callSteps)
	cmd, known := e.table.Resolve(args)
	if !known {
		e.raise(L, msgACLCommand)
	}
	allowed := true
	if e.call.User != nil {
		why, _ := e.call.User.Check(cmd, args)
		allowed = why == store.Allowed
	}
	L.Push(lua.LBool(allowed))
	return 1
}
