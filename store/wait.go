package store

import (
	"bytes"
	"math"
	"math/big"
)

// How a command waits. Run never blocks: when a blocking command finds
// nothing, it sets Ctx.Wait and returns the reply that it gives inside a
// transaction or a script, where waiting is not possible. For a command that
// stands alone the caller holds the reply back and keeps the Wait. When a key
// of it has become ready, which Txn.TakeReady tells, the caller runs the
// command again with Ctx.Ready set to that key; if Ctx.Wait is then set again,
// somebody else was faster. When Wait.Timeout is over, the reply is
// WaitTimedOut.

// Wait is what a blocking command waits for.
type Wait struct {
	DB      int
	Keys    []string // in the order of the arguments
	Type    Type     // what one of the keys has to become
	Timeout int64    // ms from the start of the command; 0: for ever
}

// WaitTimedOut is the reply to a command that has waited in vain.
var WaitTimedOut = Reply{Kind: NullArray}

// ReadyKey is a key that has become a list or a sorted set.
type ReadyKey struct {
	DB   int
	Key  string
	Type Type
}

// TakeReady returns the keys that have become lists or sorted sets since it
// was last called, in that order; a key may come twice, and may be gone again.
// all means that SWAPDB has made it impossible to tell, so that any key may
// have. Waiters are to be served after the whole command, transaction or
// script.
func (t *Txn) TakeReady() (keys []ReadyKey, all bool) {
	keys, all = t.ready, t.swapped
	t.ready, t.swapped = nil, false
	return keys, all
}

// wait arranges for waiting on keys.
func (c *Ctx) wait(keys [][]byte, t Type, timeout int64) {
	w := &Wait{DB: c.DB, Type: t, Timeout: timeout}
	for _, k := range keys {
		w.Keys = append(w.Keys, string(k))
	}
	c.Wait = w
}

// firstOf returns the first of several keys that exists. When the command is
// run again for a key that has become ready, only that key counts, and not if
// it holds another type by now.
func (c *Ctx) firstOf(keys [][]byte, t Type) (key []byte, e *Entry, ok bool) {
	for _, k := range keys {
		if c.Ready != nil && !bytes.Equal(k, c.Ready) {
			continue
		}
		if e := c.LookupWrite(c.DB, k); e != nil {
			if e.typ != t && c.Ready != nil {
				continue
			}
			return k, e, e.typ == t
		}
	}
	return nil, nil, true
}

// WaitTimeout returns how many ms a blocking command may wait, 0 for ever; ok
// is false if its arguments do not say.
func WaitTimeout(cmd *Command, args [][]byte) (ms int64, ok bool) {
	arg := args[len(args)-1]
	if cmd.Name == "blmpop" || cmd.Name == "bzmpop" {
		arg = args[1]
	}
	ms, fault := parseTimeout(arg)
	return ms, fault == nil
}

var thousand = new(big.Float).SetInt64(1000)

// parseTimeout reads a number of seconds and rounds it up to milliseconds.
func parseTimeout(arg []byte) (ms int64, fault *Reply) {
	seconds, ok := parseLongDouble(bytesToString(arg))
	if !ok {
		return 0, &timeoutNotFloat
	}
	if seconds.IsInf() {
		return 0, &timeoutNegative
	}
	exact := new(big.Float).SetPrec(longDoublePrec).Mul(seconds, thousand)
	ms, accuracy := exact.Int64()
	if ms == math.MaxInt64 || ms == math.MinInt64 {
		return 0, &timeoutNegative // as Redis's conversion to an integer has it
	}
	if accuracy == big.Below {
		ms++
	}
	if ms < 0 {
		return 0, &timeoutNegative
	}
	return ms, nil
}

var (
	timeoutNotFloat = Err(ErrTimeoutNotFloat)
	timeoutNegative = Err(ErrTimeoutNegative)
)
