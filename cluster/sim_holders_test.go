package cluster

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// The model of a lock with several holders (simShare, simPermit). Each grant has an owner of its own.

// leased reports whether keys of a kind are locks.
func (k simKind) leased() bool { return strings.ContainsRune("khsp", rune(k)) }

// simHolder is an owner that holds the lock.
type simHolder struct {
	owner, mode string // the mode is "" for an exclusive holder, SHARED or LIMIT
	permits     int
	end         time.Duration // its place becomes free at this time at the earliest
	lease       time.Duration // its lease ends at this time at the earliest
}

// simHolders decodes the holders in a state.
func simHolders(st simState) (list []simHolder) {
	for _, text := range strings.Fields(st.s) {
		f := strings.Split(text, "|")
		h := simHolder{owner: f[0], mode: f[1]}
		h.permits, _ = strconv.Atoi(f[2])
		end, _ := strconv.ParseInt(f[3], 10, 64)
		lease, _ := strconv.ParseInt(f[4], 10, 64)
		h.end, h.lease = time.Duration(end), time.Duration(lease)
		list = append(list, h)
	}
	return list
}

// holding returns the state with other holders.
func (st simState) holding(list []simHolder) simState {
	var words []string
	for _, h := range list {
		words = append(words, strings.Join([]string{h.owner, h.mode, strconv.Itoa(h.permits), strconv.FormatInt(int64(h.end), 10), strconv.FormatInt(int64(h.lease), 10)}, "|"))
	}
	slices.Sort(words)
	st.s = strings.Join(words, " ")
	return st
}

// stepHolders is the model; max is the largest token so far.
func stepHolders(op *simOp, st simState) []simState {
	list := simHolders(st)
	i := slices.IndexFunc(list, func(h simHolder) bool { return h.owner == op.arg })
	without := slices.Clone(list)
	if i >= 0 {
		without = slices.Delete(without, i, i+1)
	}
	switch op.verb {
	case opJoin:
		if op.unseen || op.reply.Kind == store.Array {
			return op.joins(st, list)
		}
		return one(len(list) > 0, st)
	case opAcquire: // the last one: SET NX
		if op.unseen || op.reply.Kind == store.Simple {
			return op.joins(st, list)
		}
		return one(len(list) > 0, st)
	case opLeave:
		if op.unseen || op.reply.Kind == store.Integer {
			return one(i >= 0, st.holding(without))
		}
	case opKeep:
		if op.unseen || op.reply.Int > 0 {
			if i < 0 {
				return nil
			}
			renewed := slices.Clone(list)
			delay := renewed[i].end - renewed[i].lease
			renewed[i].lease = op.until()
			renewed[i].end = renewed[i].lease + delay
			return one(true, st.holding(renewed))
		}
	}
	if i < 0 {
		return one(true, st)
	}
	return one(op.ret >= list[i].lease, st) // its place may last for its delay
}

// joins returns the state after the owner has become a holder. Those that it cannot hold the lock with must have lost their places.
func (op *simOp) joins(st simState, list []simHolder) []simState {
	mine := simHolder{owner: op.arg, permits: 1, lease: op.until()}
	mine.end = mine.lease
	form := strings.Fields(op.form)
	for i, word := range form {
		switch word {
		case "SHARED", "LIMIT":
			mine.mode = word
		case "PERMITS":
			mine.permits, _ = strconv.Atoi(form[i+1])
		case "DELAY":
			mine.end += 98 * ms // of 100, because clocks drift
		}
	}
	// A holder whose time may be over stays in the state, as it may renew its lease, unless it cannot be there beside this one.
	var beside []simHolder
	used := mine.permits
	for _, h := range list {
		fits := h.mode == mine.mode && mine.mode != ""
		if op.ret < h.end {
			if !fits {
				return nil
			}
			used += h.permits
		}
		if fits {
			beside = append(beside, h)
		}
	}
	if mine.mode == "LIMIT" && used > 3 {
		return nil
	}
	next := st.holding(append(beside, mine))
	if !op.unseen && op.reply.Kind == store.Array {
		next.max = int(op.reply.Elems[0].Int)
	}
	return one(next.max > st.max || next.max == st.max && (op.unseen || op.reply.Kind != store.Array), next)
}
