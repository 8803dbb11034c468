package store

import (
	"slices"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// lockList are the options of LOCK.LIST.
type lockList struct {
	scanOptions
	cursor  uint64
	kind    string
	owner   string // a pattern
	owned   bool   // the pattern was given
	waiters int64
	minAge  int64 // in ms
}

// parse parses pairs of a word and its argument.
func (o *lockList) parse(args [][]byte) (fault *Reply) {
	var rest [][]byte // the words that SCAN has, too
	for ; len(args) > 0; args = args[2:] {
		if len(args) < 2 {
			return &syntaxError
		}
		value, ok := args[1], true
		switch word := args[0]; {
		case equalFold(word, "cursor"):
			if o.cursor, ok = parseCursor(value); !ok {
				return &badCursor
			}
		case equalFold(word, "kind"):
			at := slices.IndexFunc(lockKinds, func(kind string) bool { return equalFold(value, kind) })
			if at < 0 {
				return &badKind
			}
			o.kind = lockKinds[at]
		case equalFold(word, "owner"):
			o.owner, o.owned = string(value), true
		case equalFold(word, "waiters"):
			if o.waiters, ok = redistext.ParseInt(value); !ok || o.waiters < 0 {
				return &notInteger
			}
		case equalFold(word, "minage"):
			if o.minAge, ok = redistext.ParseInt(value); !ok || o.minAge < 0 {
				return &notInteger
			}
		case equalFold(word, "sort"), equalFold(word, "client"):
			return &badInside
		default:
			rest = append(rest, word, value)
		}
	}
	o.scanOptions, fault = parseScanOptions(rest, false)
	return fault
}

var (
	badCursor = Err(ErrCursor)
	badKind   = Err(ErrLockKind)
	badInside = Err(ErrLockListInside)
)

// cmdLockList shows only locks for which the user may run LOCK.INFO: an owner's name is often the secret that releases its lock.
func cmdLockList(c *Ctx) Reply {
	var o lockList
	if fault := o.parse(c.Args[1:]); fault != nil {
		return *fault
	}
	if !c.TokensCounted() {
		return noTokens
	}
	info, walk, list := c.Cmd.table.Lookup(lockInfo), scanWalk{left: o.count}, []Reply{}
	c.Ascend(c.DB, o.cursor, func(e *Entry) bool {
		if !walk.visit(e.hash()) {
			return false
		}
		if row, ok := c.listed(e, &o); ok && o.matches(c, e.key) && c.MayRun(info, lockInfo, stringBytes(e.key)) {
			list = append(list, row)
			walk.size += Extent([]Reply{row}, scanPart)
		}
		return true
	})
	return walk.reply(list)
}

var lockInfo = []byte("lock.info")

// MayRun reports whether the user may run a command.
func (c *Ctx) MayRun(cmd *Command, args ...[]byte) bool {
	if c.User == nil {
		return true
	}
	why, _, steps := c.User.CheckSteps(cmd, args)
	c.work(steps)
	return why == Allowed
}

// listed returns the row of a lock; ok is false for another key, and for a lock that the options leave out.
func (c *Ctx) listed(e *Entry, o *lockList) (row Reply, ok bool) {
	kind := c.kindOf(e)
	if kind == "" || o.kind != "" && o.kind != kind {
		return row, false
	}
	waiters := c.waitersOf(e, kind)
	if waiters < o.waiters {
		return row, false
	}
	n, first, wanted, token := int64(0), lockHolder{}, !o.owned, uint64(0)
	c.eachHolder(e, kind, func(h lockHolder) bool {
		c.work(1)
		if n++; n == 1 {
			first = h
		}
		token = max(token, h.token)
		wanted = wanted || c.match(o.owner, h.owner)
		return true
	})
	fields := c.holderFields(first)
	if o.minAge > 0 && fields[1].Int < o.minAge {
		return row, false
	}
	at, leased := e.until()
	return MapOf(Str("key"), Str(e.key), Str("kind"), Str(kind), Str("owner"), Str(first.owner), Str("holders"), Int(n), Str("token"), Int(int64(token)),
		Str("ttl"), Int(c.ttlOf(at, leased)), Str("waiters"), Int(waiters)).With(fields...), wanted
}
