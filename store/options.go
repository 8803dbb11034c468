package store

import (
	"math"

	"lockstep/store/redistext"
)

// optionFlags is a set of option words of SET and GETEX.
type optionFlags uint16

const (
	optNX optionFlags = 1 << iota
	optXX
	optGet
	optKeepTTL
	optPersist
	optEX
	optPX
	optEXAT
	optPXAT
)

// The words that SET accepts and those that GETEX accepts.
const (
	timeWords  = optEX | optPX | optEXAT | optPXAT
	setWords   = timeWords | optNX | optXX | optGet | optKeepTTL
	getexWords = timeWords | optPersist
)

// optionWord is one option word, which may be repeated, and the words that conflict with it.
type optionWord struct {
	word     string
	flag     optionFlags
	conflict optionFlags
	unit     timeUnit // unit of the time that follows the word; 0: no time follows
}

const ttlWords = timeWords | optKeepTTL | optPersist

var stringOptionWords = [...]optionWord{
	{word: "nx", flag: optNX, conflict: optXX},
	{word: "xx", flag: optXX, conflict: optNX},
	{word: "get", flag: optGet},
	{word: "keepttl", flag: optKeepTTL, conflict: ttlWords &^ optKeepTTL},
	{word: "persist", flag: optPersist, conflict: ttlWords &^ optPersist},
	{word: "ex", flag: optEX, conflict: ttlWords &^ optEX, unit: unitEX},
	{word: "px", flag: optPX, conflict: ttlWords &^ optPX, unit: unitPX},
	{word: "exat", flag: optEXAT, conflict: ttlWords &^ optEXAT, unit: unitEXAT},
	{word: "pxat", flag: optPXAT, conflict: ttlWords &^ optPXAT, unit: unitPXAT},
}

// stringOptions are the parsed options of SET and GETEX.
type stringOptions struct {
	flags  optionFlags
	unit   timeUnit
	expire []byte // the time as the client sent it; nil means none
}

func (o *stringOptions) has(f optionFlags) bool { return o.flags&f != 0 }

// parseStringOptions parses the words that allowed has, but not the times: Redis checks all words first.
func parseStringOptions(args [][]byte, allowed optionFlags) (o stringOptions, ok bool) {
	for i := 0; i < len(args); i++ {
		w := findOption(args[i])
		if w == nil || allowed&w.flag == 0 || o.flags&w.conflict != 0 {
			return o, false
		}
		o.flags |= w.flag
		if w.unit != 0 {
			i++
			if i == len(args) {
				return o, false
			}
			o.expire, o.unit = args[i], w.unit
		}
	}
	return o, true
}

func findOption(arg []byte) *optionWord {
	for i := range stringOptionWords {
		if w := &stringOptionWords[i]; equalFold(arg, w.word) {
			return w
		}
	}
	return nil
}

// timeUnit says how to interpret the time of an option or a command.
type timeUnit uint8

const (
	unitEX   timeUnit = iota + 1 // seconds from now
	unitPX                       // milliseconds from now
	unitEXAT                     // Unix time in seconds
	unitPXAT                     // Unix time in milliseconds
)

func (u timeUnit) seconds() bool  { return u == unitEX || u == unitEXAT }
func (u timeUnit) relative() bool { return u == unitEX || u == unitPX }

// expireTime converts a time argument of the SET family to Unix ms; nil becomes 0.
func (c *Ctx) expireTime(arg []byte, u timeUnit) (when int64, ok bool, e Error) {
	if arg == nil {
		return 0, true, ""
	}
	n, ok := redistext.ParseInt(arg)
	if !ok {
		return 0, false, ErrNotInteger
	}
	if n > 0 {
		if when, ok = c.unixMs(n, u); ok {
			return when, true, ""
		}
	}
	return 0, false, ErrInvalidExpire(c.Cmd.FullName())
}

// unixMs converts a time in the unit u to Unix ms; ok is false on overflow. A relative time makes TakeLeases return true.
func (c *Ctx) unixMs(n int64, u timeUnit) (when int64, ok bool) {
	if u.seconds() {
		if n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
			return 0, false
		}
		n *= 1000
	}
	if !u.relative() {
		return n, true
	}
	c.leases = true
	now := c.UnixMilli()
	if n > math.MaxInt64-now {
		return 0, false
	}
	return n + now, true
}

// passed reports whether a Unix time in ms is not in the future. Commands never store such a deadline.
func (c *Ctx) passed(when int64) bool { return when <= c.UnixMilli() }
