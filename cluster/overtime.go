package cluster

import (
	"maps"
	"time"

	"lockstep/cluster/brake"
	"lockstep/store"
)

// Others wait while a script or a command runs. So a script, a command that takes many steps, or a transaction may
// run for the time limit of scripts, and is stopped then without a trace. Who comes again with such work has half
// as much for it each time, or some clients that run in turn would keep all others out for ever. What is short is not
// concerned, whoever sends it. In which order work is run is for userturns.go to say.

const (
	// leastTime is what is left to a user whose work has been stopped many times …
	leastTime = 50 * time.Millisecond
	// … and rushTime while one such piece follows the other, from many connections. Scripts that do little are not
	// concerned (luavm): locks are made of those.
	rushTime = time.Millisecond
	// rushMemory is after how long that doubles again.
	rushMemory = time.Second
	// overrunMemory is after how long a user has twice as much again.
	overrunMemory = time.Minute
	// overrunUsers is from how many users on those are looked for that may be forgotten.
	overrunUsers = 1000
)

// overruns is who was stopped lately.
type overruns map[string]overrun

type overrun struct {
	halvings int
	rush     int           // halvings below leastTime
	last     time.Duration // monotonic
}

// halvings is how often a user's time is halved now.
func (o overruns) halvings(user string, now time.Duration) int {
	u := o[user]
	return max(u.halvings-int((now-u.last)/overrunMemory), 0)
}

// rush is how often what is left to a user is halved below leastTime now.
func (o overruns) rush(user string, now time.Duration) int {
	u := o[user]
	return max(u.rush-int((now-u.last)/rushMemory), 0)
}

// limit is how much of a time limit is left to a user.
func (o overruns) limit(user string, full, now time.Duration) time.Duration {
	left := full >> o.halvings(user, now)
	if left > leastTime {
		return left
	}
	return min(full, max(leastTime>>o.rush(user, now), rushTime))
}

// note halves what is left to a user, below leastTime if stopped work takes a quarter of all time. first tells whether it
// had all of it until now.
func (o overruns) note(user string, full, now time.Duration) (first bool) {
	if len(o) >= overrunUsers {
		maps.DeleteFunc(o, func(user string, _ overrun) bool { return o.halvings(user, now) == 0 })
	}
	u := overrun{o.halvings(user, now), o.rush(user, now), now}
	first = u.halvings == 0
	switch left := o.limit(user, full, now); {
	case full>>u.halvings > leastTime:
		u.halvings++
	case left > rushTime && now-o[user].last < 4*left:
		u.rush++
	}
	o[user] = u
	return first
}

// turn is what is being run, and for how long it may.
type turn struct {
	user  string
	since time.Duration // monotonic; 0: it has not been looked at yet
	limit time.Duration // 0: there is none
	full  time.Duration // what the limit is for others
	over  bool          // stopped by watch
}

// startTurn notes that something of a user begins, and from now on counts the time.
func (s *sequencer) startTurn(user string) {
	s.turn = turn{user: user, since: s.node.cfg.Time.Monotonic()}
	if s.node.cfg.Scripts == nil {
		return
	}
	s.turn.full = s.node.cfg.Scripts.TimeLimit()
	s.turn.limit = s.overruns.limit(user, s.turn.full, s.turn.since)
}

// ran is for how long it has run.
func (s *sequencer) ran() time.Duration { return s.node.cfg.Time.Monotonic() - s.turn.since }

// overTime reports whether it may not go on.
func (s *sequencer) overTime() bool { return s.turn.limit > 0 && s.ran() >= s.turn.limit }

// usedUp is what a script that begins now has used up of the full limit.
func (s *sequencer) usedUp() time.Duration { return s.turn.full - s.turn.limit + s.ran() }

// watch is store.Ctx.Watch of a command. Of what is short, nothing asks for the time.
func (s *sequencer) watch() {
	brake.Look() // what it allocates, such as the union of sets, nobody else counts
	if s.turn.since == 0 {
		s.startTurn(s.turn.user)
		return
	}
	forNow := s.company && s.ran() > companyTime
	if s.turn.over = forNow || s.overTime(); s.turn.over {
		s.ctx.StoppedForNow = forNow
		panic(errOverTime)
	}
}

// runCommand runs a command that is no script. stopped is the error of one that was stopped.
func (s *sequencer) runCommand(ctx *store.Ctx, stopped store.Error) (reply store.Reply) {
	ctx.Watch = s.watches
	defer func() {
		if s.turn.over {
			recover()
			s.turn.over = false
			ctx.Stopped, ctx.StoppedForNow = stopped, s.ctx.StoppedForNow
			reply = store.Err(stopped)
			s.wasStopped(ctx)
		}
	}()
	return ctx.Cmd.Run(ctx)
}

// wasStopped notes whose work was stopped, if its time was over, or if it took its memory and the time of heavy
// work.
func (s *sequencer) wasStopped(ctx *store.Ctx) {
	late := ctx.Stopped != "" && !ctx.StoppedForNow && s.overTime()
	large := ctx.TookAll && s.turn.full > 0 && s.ran() > heavyTime
	if !late && !large {
		return
	}
	now := s.node.cfg.Time.Monotonic()
	if s.overruns.note(s.turn.user, s.turn.full, now) {
		s.log.Warn("a script or command was stopped by its time limit (script-time-limit) or for its memory, and nobody was served meanwhile; its user has half as much time for a minute, and half of that after the next",
			"user", s.turn.user, "left", s.overruns.limit(s.turn.user, s.turn.full, now))
	}
}
