package server

import (
	"math"

	"lockstep/cluster/brake"
	"lockstep/store"
)

// What one command makes grow: the reply that is built for it, and what its client holds by
// it. Both are counted while the command runs, not behind it: a list of names is short on the
// wire, and its answer is not.

// goesOn reports whether a command that makes more and more may go on: not if its client
// has been cut off. If clients hold too much, those who hold most are cut off before it does.
func (s *session) goesOn() bool {
	if s.script != nil {
		return true // it has limits of its own
	}
	m := &s.srv.clientMemory
	if limit := m.limit.Load(); limit > 0 && m.large.Load() > limit && !s.out.isOver() {
		s.srv.evictClients()
	}
	return !s.out.isOver()
}

// mayHold reports whether a client may hold so much more, before it does.
func (s *session) mayHold(n int64) bool {
	s.holds(n)
	defer s.holds(-n)
	return s.goesOn()
}

// hasRoom cuts a client off whose large reply would be encoded while clients hold much more than they may: until
// those who hold most have gone, many at once would take memory that is not there.
func (s *session) hasRoom(r *store.Reply) bool {
	if len(r.Str) <= keepOutput && r.Elems == nil {
		return true
	}
	all := []store.Reply{*r}
	if store.Extent(all, keepOutput) <= keepOutput {
		return true
	}
	n := int64(store.Extent(all, math.MaxInt))
	m := &s.srv.clientMemory
	if !s.evictable() || !m.beyondWith(n-s.built) {
		brake.Bring(int(n))
		return true
	}
	m.refused(s.conn.RemoteAddr(), n)
	s.out.abort()
	return false
}

// growthStep is how many names a command takes in before it asks whether it may go on.
const growthStep = 64

// eachName calls do with names as long as the command may go on.
func eachName[T string | []byte](s *session, names []T, do func(name string)) {
	for i, name := range names {
		if i%growthStep == growthStep-1 && !s.goesOn() {
			return
		}
		do(string(name))
	}
}

// building is a reply of many elements while it is built. It ends where it would be larger
// than a reply may be, or when its client is cut off: what is added then is dropped.
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

// add appends elements, and reports whether there is room for more.
func (b *building) add(elems ...store.Reply) bool {
	if !b.takes(int64(store.Extent(elems, int(b.limit)))) {
		return false
	}
	b.elems = append(b.elems, elems...)
	return true
}

// takes counts bytes of the reply, and reports whether there is room for more.
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

// reply is what was built, or its refusal.
func (b *building) reply(kind store.Kind) store.Reply {
	if b.over {
		return store.Err(store.ErrReplyTooBig(b.limit))
	}
	return store.Reply{Kind: kind, Elems: b.elems}
}

// builds counts what the client's next reply takes until it has been queued.
func (s *session) builds(by int64) {
	if s.script == nil {
		s.built += by
		s.holds(by)
	}
}

// strs is an array of names, each with what it is told of.
func (s *session) strs(names []string) store.Reply {
	b := s.build()
	for _, name := range names {
		if !b.add(store.Str(name)) {
			break
		}
	}
	return b.reply(store.Array)
}

// run has the session answer a command. However its reply came about, it is no larger than
// one may be.
func (s *session) run(do handler, args [][]byte) store.Reply {
	r := do(s, args)
	if limit := s.maxReply(); int64(store.Extent([]store.Reply{r}, int(limit))) > limit {
		return store.Err(store.ErrReplyTooBig(limit))
	}
	return r
}
