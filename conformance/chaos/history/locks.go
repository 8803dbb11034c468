package history

import "strconv"

// resolution is that of the servers' lease clock, in nanoseconds. A lease may seem to end this much too early.
const resolution = 1e6

// lockState is the state of a lock between two operations.
//
// A lease may end late, and no reply says when. So in the model, a lease ends only when nothing else explains an operation.
type lockState struct {
	owner  string
	count  int   // of a reentrant lock
	fenced int64 // how many fenced owners there were
	token  int64 // of the owner, or 0 if nobody was told it
	past   int64 // the largest token that an earlier owner was told
	safe   int64 // the lease cannot have ended before this instant
	now    int64 // the earliest instant at which the last operation can have taken effect
}

// at moves the clock to the earliest instant at which op can take effect. It returns false if op returned before that instant.
func (s lockState) at(op *Op) (lockState, bool) {
	s.now = max(s.now, op.Invoke)
	return s, s.now <= op.until()
}

// free returns the state without an owner. It returns false if the lock has an owner whose lease cannot be over by the time of op.
func (s lockState) free(op *Op) (lockState, bool) {
	if s.owner == "" {
		return s, true
	}
	if op.until() < s.safe {
		return s, false
	}
	s.now = max(s.now, s.safe)
	return s.released(), true
}

// extended starts a lease with op. The lease counts from the earliest instant at which op can have taken effect.
func (s lockState) extended(op *Op) lockState {
	s.safe = s.now + op.TTL - resolution
	return s
}

func (s lockState) released() lockState {
	s.past = max(s.past, s.token)
	s.owner, s.count, s.token, s.safe = "", 0, 0, 0
	return s
}

// stepLock is the model of a lock, with these operations and replies:
//
//	acquire  SET key owner NX PX ttl                1, or 0: held
//	fenced   the same, and INCR of a counter        the count, or 0: held
//	grant    the same, and LOCK.TOKEN               the token, or 0: held
//	token    LOCK.TOKEN of the owner                the token, or nil: not the owner's
//	release  delete if the owner's                  1 or 0
//	renew    PEXPIRE if the owner's                 1 or 0
//	read     GET                                    the owner, or nil
//	left     PTTL                                   milliseconds, -2: free
func stepLock(state any, op *Op) []any {
	s, ok := state.(lockState).at(op)
	if !ok {
		return nil
	}
	switch op.Call {
	case "acquire", "fenced", "grant":
		return s.acquire(op)
	case "token":
		return s.tells(op)
	case "release":
		return s.ifOwner(op, lockState.released)
	case "renew":
		return s.ifOwner(op, func(s lockState) lockState { return s.extended(op) })
	case "read":
		if op.Result == s.owner {
			return []any{s}
		}
		return s.absent(op, op.Result == "")
	case "left":
		return s.left(op)
	}
	return nil
}

func (s lockState) acquire(op *Op) []any {
	if !op.Unknown && op.Result == "0" {
		if s.owner == "" {
			return nil
		}
		return []any{s}
	}
	s, ok := s.free(op)
	if !ok {
		return nil
	}
	if op.Call == "fenced" {
		s.fenced++
		if !op.Unknown && op.Result != strconv.FormatInt(s.fenced, 10) {
			return nil
		}
	}
	s.owner = op.Owner
	s = s.extended(op)
	if op.Call == "grant" && !op.Unknown {
		return s.tells(op)
	}
	return []any{s}
}

// tells is the step for a reply with the owner's token: it stays as it is, and is larger than those of all earlier owners.
func (s lockState) tells(op *Op) []any {
	if op.Result == "" && s.owner != op.Owner {
		return []any{s}
	}
	if op.Result == "" {
		return s.absent(op, true)
	}
	n, err := strconv.ParseInt(op.Result, 10, 64)
	if err != nil || s.owner != op.Owner || n <= s.past || s.token != 0 && n != s.token {
		return nil
	}
	s.token = n
	return []any{s}
}

// ifOwner is the step for an operation that takes effect, with the reply 1, only if its owner holds the lock.
func (s lockState) ifOwner(op *Op, does func(lockState) lockState) []any {
	switch {
	case op.Unknown && s.owner == op.Owner, op.Result == "1" && s.owner == op.Owner:
		return []any{does(s)}
	case op.Unknown, op.Result == "0" && s.owner != op.Owner:
		return []any{s}
	}
	return s.absent(op, op.Result == "0")
}

// absent is the step for an operation that may reply that the lock has no owner. The argument "says" is true if the reply was that.
func (s lockState) absent(op *Op, says bool) []any {
	if !says {
		return nil
	}
	if s, ok := s.free(op); ok {
		return []any{s}
	}
	return nil
}

// left is the step for PTTL. If less time is left than the owner was promised, the lease was shortened.
func (s lockState) left(op *Op) []any {
	ms, err := strconv.ParseInt(op.Result, 10, 64)
	if err != nil {
		return nil
	}
	if ms < 0 {
		return s.absent(op, ms == -2)
	}
	if s.owner == "" || op.Return+ms*1e6 < s.safe-resolution {
		return nil
	}
	return []any{s}
}

// stepHash is the model of a lock that its owner may take several times, with these operations and replies:
//
//	lock    HINCRBY if free or the owner's   the count, or 0: held by another
//	unlock  HINCRBY -1, DEL at zero          the count that is left, or -1: not the owner's
//	renew   PEXPIRE if the owner's           1 or 0
//	count   HGET                             the owner's count, or 0
//	token   LOCK.TOKEN of the owner          the token, or nil: not the owner's
func stepHash(state any, op *Op) []any {
	s, ok := state.(lockState).at(op)
	if !ok {
		return nil
	}
	switch op.Call {
	case "lock":
		return s.reenter(op)
	case "unlock":
		return s.leave(op)
	case "renew":
		return s.ifOwner(op, func(s lockState) lockState { return s.extended(op) })
	case "token":
		return s.tells(op)
	case "count":
		mine := 0
		if s.owner == op.Owner {
			mine = s.count
		}
		if op.Result == strconv.Itoa(mine) {
			return []any{s}
		}
		return s.absent(op, op.Result == "0")
	}
	return nil
}

func (s lockState) reenter(op *Op) (next []any) {
	if !op.Unknown && op.Result == "0" {
		if s.owner == "" || s.owner == op.Owner {
			return nil
		}
		return []any{s}
	}
	granted := func(s lockState) {
		if s.count++; op.Unknown || op.Result == strconv.Itoa(s.count) {
			s.owner = op.Owner
			next = append(next, s.extended(op))
		}
	}
	if s.owner == op.Owner {
		granted(s)
	}
	if s, ok := s.free(op); ok {
		granted(s)
	}
	return next
}

func (s lockState) leave(op *Op) []any {
	if s.owner != op.Owner {
		if op.Unknown || op.Result == "-1" {
			return []any{s}
		}
		return nil
	}
	if !op.Unknown && op.Result == "-1" {
		return s.absent(op, true)
	}
	s.count--
	if !op.Unknown && op.Result != strconv.Itoa(s.count) {
		return nil
	}
	if s.count == 0 {
		return []any{s.released()}
	}
	return []any{s.extended(op)}
}
