package main

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// step is one command for both servers.
type step struct {
	args    []string // nil: the step releases the waiter
	how     how
	resp3   bool // the step goes over the connection that speaks RESP3
	waiter  int  // 1 or 2: the step goes over this connection, which may stay blocked
	expires bool // the step leaves keys whose time to live ends at once
}

// generator draws steps. Equal seeds give equal steps.
type generator struct {
	r        *rand.Rand
	common   []drawn
	seldom   []drawn
	blocking []drawn
	pending  []step
}

type drawn struct {
	node
	how how
}

func newGenerator(seed uint64) *generator {
	list := commands
	if encodings(seed) == exact {
		list = nil
		for _, c := range commands {
			if c.how == encoding {
				c.how = exact
			}
			if !strings.HasPrefix(c.syntax, "SORT") {
				list = append(list, c)
			}
		}
	}
	return &generator{r: rand.New(rand.NewPCG(seed, 0)), common: parseAll(list), seldom: parseAll(rare), blocking: parseAll(waiting)}
}

// encodings returns how the episode with this seed compares the encodings of keys. Every other episode compares them exactly, and
// has no SORT.
func encodings(seed uint64) how {
	if seed%2 == 1 {
		return exact
	}
	return encoding
}

func parseAll(list []command) (all []drawn) {
	for _, c := range list {
		all = append(all, drawn{parse(c.syntax), c.how})
	}
	return all
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

// draw draws one step, or a few steps that belong together, and puts them into pending.
func (g *generator) draw() {
	g.pending = append(g.pending, g.some()...)
	resp3 := g.r.IntN(5) == 0
	for i := range g.pending {
		g.pending[i].resp3 = resp3 != g.pending[i].resp3
	}
}

// some chooses at random the steps that the method draw puts into pending.
func (g *generator) some() []step {
	switch n := g.r.IntN(1000); {
	case n < 80:
		return g.script()
	case n < 105:
		return g.transaction()
	case n < 120:
		return g.wait()
	case n < 135:
		return g.release()
	case n < 137:
		return g.expiry()
	case n < 152:
		return []step{g.pick(g.seldom)}
	case n < 160:
		return g.getKeys()
	case n < 161:
		return g.grow()
	}
	return []step{g.spoil(g.pick(g.common))}
}

func (g *generator) pick(list []drawn) step {
	d := list[g.r.IntN(len(list))]
	return step{args: d.draw(g.r, nil), how: d.how}
}

// spoil makes one command in thirty wrong in some way.
func (g *generator) spoil(s step) step {
	// With other arguments, the replies to these commands could be random, could wait, or could differ between the two servers.
	if g.r.IntN(30) > 0 || s.how == shape || s.how == scan || s.how == scan2 || s.args[0] == "SPOP" || blocks(s.args[0]) ||
		s.args[0] == "ZRANK" || s.args[0] == "ZREVRANK" {
		return s
	}
	i := g.r.IntN(len(s.args))
	switch g.r.IntN(4) {
	case 0:
		s.args = append(s.args[:i:i], s.args[i+1:]...)
	case 1:
		s.args = append(s.args, words["value"](g.r))
	case 2:
		if !timed[s.args[0]] { // otherwise the wrong value could be a short time to live, which ends at any moment
			s.args[i] = words["int"](g.r)
		}
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

// timed has the commands that set a time to live.
var timed = map[string]bool{
	"SET": true, "SETEX": true, "PSETEX": true, "GETEX": true, "EXPIRE": true, "PEXPIRE": true, "RESTORE": true,
}

// script draws a command that a script calls.
func (g *generator) script() []step {
	s := g.spoil(g.pick(g.common))
	switch s.how {
	case near, shape, encoding:
		return nil // the two results may differ although both servers are right
	}
	w := wrappers[g.r.IntN(len(wrappers))]
	if s.how != exact || w.maps {
		s.how = leaves
	}
	s.args = append(append(w.call[:len(w.call):len(w.call)], "0"), s.args...)
	return []step{s}
}

// transaction draws a MULTI and the commands that follow it.
func (g *generator) transaction() []step {
	var list []step
	if g.r.IntN(3) == 0 {
		list = append(list, step{args: []string{"WATCH", words["key"](g.r), words["key"](g.r)}})
		for range 1 + g.r.IntN(2) {
			s := g.spoil(g.pick(g.common))
			s.resp3 = g.r.IntN(2) == 0 // over the other connection
			list = append(list, s)
		}
	}
	list = append(list, step{args: []string{"MULTI"}})
	for range g.r.IntN(6) {
		switch n := g.r.IntN(60); {
		case n < 5:
			list = append(list, g.script()...)
		case n < 6:
			list = append(list, g.expiry()...)
		case n < 9:
			list = append(list, g.pick(g.seldom))
		default:
			list = append(list, g.spoil(g.pick(g.common)))
		}
	}
	end := step{args: []string{"EXEC"}}
	if g.r.IntN(10) == 0 {
		end = step{args: []string{"DISCARD"}}
	}
	list = append(list, end)
	if g.r.IntN(10) == 0 {
		list = append(list, step{args: []string{"UNWATCH"}})
	}
	return list
}

// expiry draws a step with a time to live that may end before the step does.
func (g *generator) expiry() []step {
	key, ms := words["key"](g.r), strconv.Itoa(10+g.r.IntN(3))
	if g.r.IntN(3) == 0 {
		return []step{{args: []string{"SET", key, "v", "PXAT", ms}, expires: true}}
	}
	return []step{{args: []string{"PEXPIRE", key, ms}, expires: true}}
}

// grow draws a command that makes a collection too large for its compact form.
func (g *generator) grow() []step {
	n := 100 + g.r.IntN(500)
	var args []string
	switch g.r.IntN(4) {
	case 0:
		args = []string{"HSET", words["hash"](g.r)}
	case 1:
		args = []string{"SADD", words["set"](g.r)}
	case 2:
		args = []string{"ZADD", words["zset"](g.r)}
	default:
		args = []string{"RPUSH", words["list"](g.r)}
	}
	for i := range n {
		element := strconv.Itoa(i)
		switch args[0] {
		case "HSET":
			args = append(args, element, "v")
		case "ZADD":
			args = append(args, strconv.Itoa(i%50), element)
		case "RPUSH":
			args = append(args, element+" is one of many elements of a list that is longer than a block")
		default:
			args = append(args, element)
		}
	}
	return []step{{args: args}}
}

// wait leaves a client blocked until a later command serves it. If the key already has an element, the client is served at once.
func (g *generator) wait() []step {
	d := g.blocking[g.r.IntN(len(g.blocking))]
	return []step{{args: d.draw(g.r, nil), how: d.how, waiter: 1 + g.r.IntN(waiters)}}
}

// release ends the wait of a blocked client.
func (g *generator) release() []step {
	return []step{{waiter: 1 + g.r.IntN(waiters)}}
}

// getKeys draws a question for the keys of a command.
func (g *generator) getKeys() []step {
	s := g.spoil(g.pick(g.common))
	sub := []string{"GETKEYS", "GETKEYSANDFLAGS"}[g.r.IntN(2)]
	return []step{{args: append([]string{"COMMAND", sub}, s.args...)}}
}
