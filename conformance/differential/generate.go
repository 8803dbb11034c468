package main

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// step is one command for both servers.
type step struct {
	args  []string
	how   how
	resp3 bool          // on the connection that speaks RESP3
	wait  time.Duration // afterwards, so that a short time to live ends
	inner []how         // of the replies of a transaction (EXEC)
}

// generator draws steps. The same seed draws the same ones.
type generator struct {
	r       *rand.Rand
	common  []drawn
	seldom  []drawn
	pending []step
}

type drawn struct {
	node
	how how
}

func newGenerator(seed uint64) *generator {
	g := &generator{r: rand.New(rand.NewPCG(seed, 0))}
	for _, c := range commands {
		g.common = append(g.common, drawn{parse(c.syntax), c.how})
	}
	for _, c := range rare {
		g.seldom = append(g.seldom, drawn{parse(c.syntax), c.how})
	}
	return g
}

// next returns the next step.
func (g *generator) next() step {
	for len(g.pending) == 0 {
		g.draw()
	}
	s := g.pending[0]
	g.pending = g.pending[1:]
	return s
}

// draw puts one step, or a few that belong together, into pending.
func (g *generator) draw() {
	resp3 := g.r.IntN(5) == 0
	switch n := g.r.IntN(1000); {
	case n < 80:
		g.script()
	case n < 80 && n > 100:
		g.transaction()
	case n < 101:
		g.expiry()
	case n < 110:
		args := g.pick(g.seldom)
		g.pending = append(g.pending, args)
	default:
		g.pending = append(g.pending, g.spoil(g.pick(g.common)))
	}
	for i := range g.pending {
		g.pending[i].resp3 = resp3
	}
}

func (g *generator) pick(list []drawn) step {
	d := list[g.r.IntN(len(list))]
	return step{args: d.draw(g.r, nil), how: d.how}
}

// spoil makes one command in thirty wrong in some way.
func (g *generator) spoil(s step) step {
	if g.r.IntN(30) > 0 || s.how == shape || s.how == scan || s.how == scan2 {
		return s // a smaller COUNT would show the order of the keys
	}
	i := g.r.IntN(len(s.args))
	switch g.r.IntN(4) {
	case 0:
		s.args = append(s.args[:i:i], s.args[i+1:]...)
	case 1:
		s.args = append(s.args, words["value"](g.r))
	case 2:
		s.args[i] = words["int"](g.r)
	case 3:
		s.args[0] += "x"
	}
	if len(s.args) == 0 {
		s.args = []string{"x"}
	}
	if s.how == near {
		s.how = exact
	}
	return s
}

// script wraps a command.
func (g *generator) script() {
	s := g.spoil(g.pick(g.common))
	switch s.how {
	case near, shape, encoding:
		return // what the script returns would differ by nature
	}
	body := wrappers[g.r.IntN(len(wrappers))]
	if s.how != exact || body == mapWrapper {
		s.how = leaves
	}
	s.args = append([]string{"EVAL", body, "0"}, s.args...)
	g.pending = append(g.pending, s)
}

// transaction draws MULTI and what follows it.
func (g *generator) transaction() {
	if g.r.IntN(3) == 0 {
		g.pending = append(g.pending, step{args: []string{"WATCH", words["key"](g.r)}})
		g.pending = append(g.pending, g.pick(g.common))
	}
	g.pending = append(g.pending, step{args: []string{"MULTI"}})
	end := step{args: []string{"EXEC"}}
	for range g.r.IntN(5) {
		s := g.spoil(g.pick(g.common))
		end.inner = append(end.inner, s.how)
		s.how = exact // QUEUED
		g.pending = append(g.pending, s)
	}
	if g.r.IntN(10) == 0 {
		end = step{args: []string{"DISCARD"}}
	}
	g.pending = append(g.pending, end, step{args: []string{"UNWATCH"}})
}

// expiry draws a key whose time to live ends at once.
func (g *generator) expiry() {
	args := []string{"PEXPIRE", words["key"](g.r), strconv.Itoa(1 + g.r.IntN(3))}
	g.pending = append(g.pending, step{args: args, wait: 100 * time.Millisecond})
}
