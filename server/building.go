package server

import (
	"math"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/store"
)

// This file counts the memory that grows while one command runs, because even a short command may have a long reply.

// goesOn reports whether a command that uses more and more memory may continue. It may first cut off the clients that hold most.
func (s *session) goesOn() bool {
	if s.script != nil {
		return true // the script has its own limits
	}
	if s.srv.clientMemory.exceeded() && !s.out.isOver() {
		s.srv.evictClients()
	}
	return !s.out.isOver()
}

// mayHold reports whether the client may hold n more bytes, and may cut off clients. The caller counts the bytes (holds).
func (s *session) mayHold(n int64) bool {
	s.holds(n)
	defer s.holds(-n)
	return s.goesOn()
}

// takesRoom reports whether there is memory to encode a reply. If there is none for a client that is not spared, it cuts the client
// off: evictClients would be too late.
//
// The result room has been counted as held, even while takesRoom waits for the garbage collector. The caller must subtract it when the
// reply is in the output (holds).
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

// eachName calls do for each name. It stops if the command may not continue, and waits while memory is scarce.
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

// building is a reply under construction. It becomes an error, without elements, when it exceeds the limit or its client is cut off.
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

// builds adds bytes, perhaps negative, to the counted size of the reply under construction. session.reply subtracts them all again.
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
