package cluster

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"lockstep/store"
)

// Turns. Scripts run one after the other, each for its time limit at most, and all others
// wait. So that they wait for one script, not for as many as somebody sends:
//   - A pipeline ends its part when it has run for maxPartTime (tookLong). Its client's
//     node sends the others anew, unless the client has gone.
//   - A batch takes in nobody who would be evaluated later than batchSpread (evaluateOn).
//   - When a batch has taken longer than that, those who are left and those who have come
//     are put into a new order: first who has no script, then who has one, last who has
//     one that ran for long lately, or comes from a user who had (turn).
//   - Who is last begins a batch: nobody's reply waits for such a script in the same batch.
//   - The scripts of a transaction have one time limit together (runTransaction).

const (
	// maxPartTime, in ms, is for how long a pipeline is run before others have their turn.
	maxPartTime = batchSpread
	// blamedFrom, in ms, is how long a request with a script has run whose script and user
	// are blamed for it: long enough that a pause of the process is not taken for it.
	blamedFrom = 100
	// blamedFor is how long they stand behind others.
	blamedFor = time.Minute
	// maxBlamed bounds how many scripts are blamed, blamedAtOnce those of one request.
	maxBlamed    = 4096
	blamedAtOnce = 16
)

// tookLong reports whether the others of a pipeline have to wait for another turn, now that its
// call i has been run.
func (s *sequencer) tookLong(r *request, i int) bool {
	if s.ctx.Stopped != "" {
		return true
	}
	c := &r.calls[i]
	if c.Txn == nil && !c.Cmd.Is(store.Scripting) && i%16 != 15 {
		return false // to ask for the time would take longer
	}
	return s.node.clock.now().Lease-r.at > maxPartTime
}

// wasLong reports whether the evaluation of a batch, of the requests q, has taken long, and
// blames those who did.
func (s *sequencer) wasLong(q []*request, b *batch) bool {
	now := s.node.clock.now().Lease
	if now-b.from <= batchSpread {
		return false
	}
	for i, r := range q {
		until := now
		if i+1 < len(q) {
			until = q[i+1].at
		}
		if until-r.at >= blamedFrom {
			s.blame(r)
		}
	}
	return true
}

// putBack queues those who are left of a batch that took long, with those who have come
// meanwhile, in the order of their turns.
func (s *sequencer) putBack(rest []*request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.giveBack(rest)
		return
	}
	// A slice of its own: rest stands in the other of the two queues.
	q := slices.Concat(rest, s.queue)
	slices.SortStableFunc(q, func(a, b *request) int { return cmp.Compare(s.turn(a), s.turn(b)) })
	s.queue = q
	s.mu.Unlock()
}

// lastTurn is that of a script that ran for long lately.
const lastTurn = 3

// turn says how late a request is evaluated when others wait: 0 is at once.
func (s *sequencer) turn(r *request) (last int) {
	if r.overran > 0 || r.sleeper != nil || r.claim != nil {
		return 0
	}
	eachScript(r.calls, func(c *Call) {
		turn := 1
		if _, blamed := s.blamed[blameOfUser(c)]; blamed {
			turn = 2
		}
		if _, blamed := s.blamed[blameOfScript(c)]; blamed {
			turn = lastTurn
		}
		last = max(last, turn)
	})
	return last
}

// blame notes that a request has run for long.
func (s *sequencer) blame(r *request) {
	now, n := s.node.cfg.Time.Monotonic(), 0
	for what, at := range s.blamed {
		if now-at > blamedFor {
			delete(s.blamed, what)
		}
	}
	s.pardon = now + blamedFor
	eachScript(r.calls, func(c *Call) {
		s.blamed[blameOfUser(c)] = now
		if n++; n <= blamedAtOnce && len(s.blamed) < maxBlamed {
			s.blamed[blameOfScript(c)] = now
		}
	})
}

// forgive forgets all of them when nobody has run for long lately.
func (s *sequencer) forgive(now time.Duration) {
	if len(s.blamed) > 0 && now > s.pardon {
		clear(s.blamed)
	}
}

// blameSeed is of the hashes that blamed holds in place of names and texts.
var blameSeed = maphash.MakeSeed()

func blameOfUser(c *Call) uint64 { return maphash.String(blameSeed, "user "+c.User) }

// blameOfScript goes by the text of EVAL, the digest of EVALSHA, the name of FCALL.
func blameOfScript(c *Call) uint64 { return maphash.Bytes(blameSeed, c.Args[min(1, len(c.Args)-1)]) }

// eachScript calls fn for the scripts among the calls and in their transactions.
func eachScript(calls []Call, fn func(*Call)) {
	for i := range calls {
		switch c := &calls[i]; {
		case c.Txn != nil:
			eachScript(c.Txn.Calls, fn)
		case c.Cmd.Is(store.Scripting):
			fn(c)
		}
	}
}
