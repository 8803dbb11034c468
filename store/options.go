package store

import (
	"math"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// optionFlags is a set of option words of SET, GETEX and DELEX.
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
	optIfEq
	optIfNe
)

// The words that SET accepts, those that GETEX accepts, and those that DELEX accepts.
const (
	timeWords    = optEX | optPX | optEXAT | optPXAT
	compareWords = optIfEq | optIfNe
	setWords     = timeWords | compareWords | optNX | optXX | optGet | optKeepTTL
	getexWords   = timeWords | optPersist
	delexWords   = compareWords
)

// optionWord is one option word, and the words that conflict with it. A word may be repeated unless it conflicts with itself.
type optionWord struct {
	word     string
	flag     optionFlags
	conflict optionFlags
	unit     timeUnit // unit of the time that follows the word; 0: no time follows
}

const (
	ttlWords       = timeWords | optKeepTTL | optPersist
	conditionWords = compareWords | optNX | optXX
)

var stringOptionWords = [...]optionWord{
	{word: "nx", flag: optNX, conflict: conditionWords &^ optNX},
	{word: "xx", flag: optXX, conflict: conditionWords &^ optXX},
	{word: "ifeq", flag: optIfEq, conflict: conditionWords},
	{word: "ifne", flag: optIfNe, conflict: conditionWords},
	{word: "get", flag: optGet},
	{word: "keepttl", flag: optKeepTTL, conflict: ttlWords &^ optKeepTTL},
	{word: "persist", flag: optPersist, conflict: ttlWords &^ optPersist},
	{word: "ex", flag: optEX, conflict: ttlWords &^ optEX, unit: unitEX},
	{word: "px", flag: optPX, conflict: ttlWords &^ optPX, unit: unitPX},
	{word: "exat", flag: optEXAT, conflict: ttlWords &^ optEXAT, unit: unitEXAT},
	{word: "pxat", flag: optPXAT, conflict: ttlWords &^ optPXAT, unit: unitPXAT},
}

// stringOptions are the parsed options of SET, GETEX and DELEX.
type stringOptions struct {
	flags   optionFlags
	unit    timeUnit
	expire  []byte // the time as the client sent it; nil means none
	compare []byte // the value behind IFEQ or IFNE
}

func (o *stringOptions) has(f optionFlags) bool { return o.flags&f != 0 }

// allow reports whether the condition among the options, if there is one, allows the command to write. old is the entry of the key, nil if
// there is none. A missing key equals no value. IFEQ and IFNE need a string: the caller must have refused other types.
func (o *stringOptions) allow(old *Entry) bool {
	switch {
	case o.has(optNX):
		return old == nil
	case o.has(optXX):
		return old != nil
	case o.has(compareWords):
		equal := old != nil && old.str == bytesToString(o.compare)
		return equal == o.has(optIfEq)
	}
	return true
}

// parseStringOptions parses the words that allowed has, but not the times: Redis checks all words first.
func parseStringOptions(args [][]byte, allowed optionFlags) (o stringOptions, ok bool) {
	for i := 0; i < len(args); i++ {
		w := findOption(args[i])
		if w == nil || allowed&w.flag == 0 || o.flags&w.conflict != 0 {
			return o, false
		}
		o.flags |= w.flag
		if w.unit == 0 && w.flag&compareWords == 0 {
			continue
		}
		i++
		if i == len(args) {
			return o, false
		}
		if w.unit == 0 {
			o.compare = args[i]
		} else {
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
