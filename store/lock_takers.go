package store

import "bytes"

// Taker is what the server has learned of a script: in which argument an owner's name stands when the script takes a lock. When such a script
// runs again and finds the lock of another owner, its client has asked in vain, as one whose SET NX gets nil.
type Taker struct {
	owner uint8 // 1 + the index in ARGV; 0: it has taken no lock yet
	tries uint8
}

const (
	takerTries = 64 // how many runs that write are looked at until a script has taken a lock
	takerArgs  = 16 // how many arguments are looked at
)

// Before is the state before a script.
type Before struct {
	token  uint64
	writes int
}

// BeforeScript returns what AfterScript needs.
func (t *Txn) BeforeScript() Before { return Before{t.tokens.last, t.ws.Len()} }

// AfterScript learns from a script that has run, or notes that its client has asked for a lock in vain.
func (c *Ctx) AfterScript(t *Taker, before Before, keys, args [][]byte) {
	wrote := c.ws.Len() != before.writes
	if len(keys) == 0 || c.env.AskedInVain == nil || wrote == (t.owner != 0) || t.tries >= takerTries || int(t.owner) > len(args) {
		return
	}
	if wrote {
		t.tries++
	}
	e := c.peek(c.DB, bytesToString(keys[0]))
	if e == nil || c.dead(e) || wrote && c.Token(c.DB, e) <= before.token {
		return
	}
	kind := c.kindOf(e)
	switch {
	case kind == "":
	case !wrote:
		if owner := string(args[t.owner-1]); !c.holds(e, kind, owner) {
			c.askedInVain(e, owner)
		}
	default:
		c.eachHolder(e, kind, func(h lockHolder) bool {
			i := bytesIndex(args[:min(len(args), takerArgs)], h.owner)
			t.owner = uint8(i + 1)
			return false
		})
	}
}

// bytesIndex returns the index of a text in a list, or -1.
func bytesIndex(list [][]byte, text string) int {
	for i, b := range list {
		if bytes.Equal(b, stringBytes(text)) {
			return i
		}
	}
	return -1
}
