package server

import (
	"math"

	"lockstep/cluster/brake"
	"lockstep/store"
)

// This file counts the memory that grows while one command runs: the reply under construction, and what the
// command adds to its client's tables and lists (holdings). The server counts it during the command and not
// afterwards, because a short command may have a long reply.

// goesOn reports whether a command that uses more and more memory may continue. It returns false if
// the command's client has been cut off. If all clients together hold too much, goesOn first cuts
// off those that hold most.
func (s *session) goesOn() bool {
	if s.script != nil {
		return true // the script has its own limits
	}
	m := &s.srv.clientMemory
	if limit := m.limit.Load(); limit > 0 && m.large.Load() > limit && !s.out.isOver() {
		s.srv.evictClients()
	}
	return !s.out.isOver()
}

// mayHold reports whether the client may hold n more bytes than now. Like goesOn, it may first cut off the clients that
// hold most. When it returns, the n bytes are not counted: the caller counts them (holds).
func (s *session) mayHold(n int64) bool {
	s.holds(n)
	defer s.holds(-n)
	return s.goesOn()
}

// takesRoom reports whether there is memory to encode a reply. If there is none, it cuts the client off at once, unless
// the client is spared (session.spared). evictClients would be too late: while it looks for the clients that hold most,
// many large replies could take more memory than the node has.
//
// The result room is about the size of the encoded reply in bytes, or 0 if the reply is small. takesRoom first counts
// these bytes as held by the client, and then waits for the garbage collector (brake.Bring), because many clients may
// wait there at once. When the reply is in the output, the caller must subtract these bytes again (holds).
func (s *session) takesRoom(r *store.Reply) (room int64, ok bool) {
	if r.Kind != store.Packed && len(r.Str) <= keepOutput && r.Elems == nil {
		return 0, true
	}
	all := []store.Reply{*r}
	room = int64(encodedSize(r))
	if room <= keepOutput && store.Extent(all, keepOutput) <= keepOutput {
		return 0, true
	}
	n := max(room, int64(store.Extent(all, math.MaxInt)))
	m := &s.srv.clientMemory
	if m.beyondWith(n-s.built) && !s.spared(n-s.built) {
		m.refused(s.conn.RemoteAddr(), n)
		s.out.cut()
		return 0, false
	}
	s.holds(room)
	if s.mayWait() {
		brake.Bring(int(n))
	}
	return room, true
}

// growthStep is how many names a command handles between two calls of goesOn.
const growthStep = 64

// eachName calls the function do, which begins or ends a subscription, for each name. It stops if the command may not continue
// (goesOn). While memory is scarce, it waits, unless it runs on a loop.
func eachName[T string | []byte](s *session, names []T, do func(name string)) {
	var y yielding
	for i, name := range names {
		if i%growthStep == growthStep-1 {
			if s.srv.largeGarbage.bytes.Add(growthStep * subscriptionCost); s.mayWait() {
				s.srv.yield(&y, &s.srv.largeGarbage)
			}
			if !s.goesOn() {
				return
			}
		}
		do(string(name))
	}
}

// building is a reply under construction. When the reply exceeds the limit, or its client is cut off,
// building drops all elements, and the reply becomes an error.
type building struct {
	s     *session
	elems []store.Reply
	size  int64
	limit int64
	told  int64
	over  bool
}

// build begins a reply.
func (s *session) build() *building {
	return &building{s: s, elems: []store.Reply{}, limit: s.maxReply()}
}

// maxReply returns how large one reply may be.
func (s *session) maxReply() int64 {
	if s.script != nil {
		return s.script.MaxReply()
	}
	return s.srv.backend.MaxReply()
}

// add appends elements, and reports whether the reply has room for them. If not, the caller need not add any more.
func (b *building) add(elems ...store.Reply) bool {
	if !b.takes(int64(store.Extent(elems, int(b.limit)))) {
		return false
	}
	b.elems = append(b.elems, elems...)
	return true
}

// takes adds n bytes to the size of the reply, and reports whether there is room for them.
func (b *building) takes(n int64) bool {
	if b.size += n; b.size > b.limit {
		b.over = true
	}
	if by := b.size - b.told; by > keepOutput && !b.over {
		b.told = b.size
		b.s.builds(by)
		b.over = !b.s.goesOn()
	}
	if b.over {
		b.elems = nil
	}
	return !b.over
}

// reply returns the finished reply, or an error if it was too large or the client has been cut off.
func (b *building) reply(kind store.Kind) store.Reply {
	if b.over {
		return store.Err(store.ErrReplyTooBig(b.limit))
	}
	return store.Reply{Kind: kind, Elems: b.elems}
}

// builds adds a number of bytes, which may be negative, to the counted size of the reply that the present command builds.
// session.reply subtracts the whole size again. Scripts have limits of their own, so builds does nothing for them.
func (s *session) builds(by int64) {
	if s.script == nil {
		s.built += by
		s.holds(by)
	}
}

// strs returns an array of names.
func (s *session) strs(names []string) store.Reply {
	b := s.build()
	for _, name := range names {
		if !b.add(store.Str(name)) {
			break
		}
	}
	return b.reply(store.Array)
}

// run runs a handler for a command and replaces a reply that is larger than the limit with an error.
func (s *session) run(do handler, args [][]byte) store.Reply {
	r := do(s, args)
	if limit := s.maxReply(); int64(store.Extent([]store.Reply{r}, int(limit))) > limit {
		return store.Err(store.ErrReplyTooBig(limit))
	}
	return r
}
