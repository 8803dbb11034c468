package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A syntax describes the calls of a command, in the notation of the Redis documentation:
//
//	SET {str} {value} [NX|XX] [GET] [EX {ttl}]
//
// A word in braces stands for a value that is drawn from words (words.go). [x] is there half of the time. (a|b) is one of its
// alternatives; a | in brackets separates alternatives, too. x... is x one to four times, where x is the last word or group.

// node is a part of a syntax.
type node interface {
	draw(r *rand.Rand, args []string) []string
}

type (
	literal  string // stands for itself
	word     string // a value for it is drawn from words
	sequence []node
	choice   []node
	optional struct{ node }
	repeated struct{ node }
)

func (l literal) draw(_ *rand.Rand, args []string) []string { return append(args, string(l)) }

func (w word) draw(r *rand.Rand, args []string) []string { return append(args, words[string(w)](r)) }

func (s sequence) draw(r *rand.Rand, args []string) []string {
	for _, n := range s {
		args = n.draw(r, args)
	}
	return args
}

func (c choice) draw(r *rand.Rand, args []string) []string {
	return c[r.IntN(len(c))].draw(r, args)
}

func (o optional) draw(r *rand.Rand, args []string) []string {
	if r.IntN(2) == 0 {
		return args
	}
	return o.node.draw(r, args)
}

func (p repeated) draw(r *rand.Rand, args []string) []string {
	for range 1 + r.IntN(4) {
		args = p.node.draw(r, args)
	}
	return args
}

// parse reads a syntax. It panics on a wrong one: syntaxes are part of the program.
func parse(text string) node {
	for _, mark := range []string{"[", "]", "(", ")", "|", "..."} {
		text = strings.ReplaceAll(text, mark, " "+mark+" ")
	}
	p := parser{tokens: strings.Fields(text)}
	n := p.alternatives()
	if len(p.tokens) > 0 {
		panic(fmt.Sprintf("%s: %q is left over", text, p.tokens))
	}
	return n
}

type parser struct{ tokens []string }

func (p *parser) next() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) take() string {
	t := p.next()
	p.tokens = p.tokens[1:]
	return t
}

func (p *parser) alternatives() node {
	all := choice{p.sequence()}
	for p.next() == "|" {
		p.take()
		all = append(all, p.sequence())
	}
	if len(all) == 1 {
		return all[0]
	}
	return all
}

func (p *parser) sequence() node {
	var s sequence
	for {
		var n node
		switch t := p.next(); t {
		case "", "|", "]", ")":
			return s
		case "[":
			n = optional{p.group("]")}
		case "(":
			n = p.group(")")
		case "...":
			p.take()
			s[len(s)-1] = repeated{s[len(s)-1]}
			continue
		default:
			n = terminal(p.take())
		}
		s = append(s, n)
	}
}

func (p *parser) group(end string) node {
	p.take()
	n := p.alternatives()
	if p.next() != end {
		panic(fmt.Sprintf("%s is missing before %q", end, p.tokens))
	}
	p.take()
	return n
}

func terminal(t string) node {
	if !strings.HasPrefix(t, "{") {
		return literal(t)
	}
	name := strings.Trim(t, "{}")
	if words[name] == nil {
		panic(fmt.Sprintf("%s is not in words", t))
	}
	return word(name)
}
