package server

import (
	"fmt"
	"slices"
	"strings"
)

// argument is a node of the tree by which COMMAND DOCS describes the arguments of a command. redis-cli makes
// its hints from this tree.
type argument struct {
	name     string
	kind     string // key, string, integer, …, pure-token, oneof, block
	token    string // EX in "EX seconds", or the only word of a pure-token; empty: there is none
	optional bool
	multiple bool
	args     []argument // for oneof and block
}

// parseUsage parses the notation in which a command's Usage describes its arguments:
//
//	key             an argument; its type follows from its name
//	EX seconds      an argument after a token
//	KEEPTTL         a token alone
//	[…]             may be left out
//	<A | B>         one of these
//	x [x ...]       x, at least once
//	[x ...]         x, any number of times
//	<…> ...         a group, at least once
func parseUsage(usage string) ([]argument, error) {
	for _, mark := range []string{"[", "]", "<", ">", "|"} {
		usage = strings.ReplaceAll(usage, mark, " "+mark+" ")
	}
	p := &usageParser{words: strings.Fields(usage)}
	args := p.alternatives("")
	if p.fault == "" && len(p.words) > 0 {
		p.fault = "unexpected " + p.words[0]
	}
	if p.fault != "" {
		return nil, fmt.Errorf("usage %q: %s", usage, p.fault)
	}
	return args, nil
}

type usageParser struct {
	words []string
	fault string
}

func (p *usageParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *usageParser) take() string {
	w := p.next()
	p.words = p.words[min(1, len(p.words)):]
	return w
}

// alternatives parses up to the closing bracket end, which it consumes ("": up to the end of the text). Several alternatives become one
// argument of kind oneof.
func (p *usageParser) alternatives(end string) []argument {
	var all [][]argument
	for {
		all = append(all, p.sequence(end))
		w := p.take()
		if w == "|" {
			continue
		}
		if w != end {
			p.fault = "missing " + end
		}
		break
	}
	if len(all) == 1 {
		return all[0]
	}
	one := argument{kind: "oneof"}
	for _, args := range all {
		one.args = append(one.args, group(args))
	}
	one.name = joinNames(one.args)
	return []argument{one}
}

// sequence parses arguments up to a bar, a closing bracket or the end of the text, which it does not consume.
func (p *usageParser) sequence(end string) []argument {
	var args []argument
	for p.fault == "" {
		switch w := p.next(); w {
		case "", "|", end, "]", ">":
			return args
		case "...":
			p.take()
			if len(args) == 0 {
				p.fault = "nothing to repeat"
				return nil
			}
			args[len(args)-1].multiple = true
		case "[":
			p.take()
			args = addOptional(args, p.alternatives("]"))
		case "<":
			p.take()
			args = append(args, group(p.alternatives(">")))
		default:
			p.take()
			args = append(args, p.word(w))
		}
	}
	return args
}

// word parses an argument that begins with the word w, which the caller has consumed.
func (p *usageParser) word(w string) argument {
	if !isToken(w) {
		return argument{name: w, kind: argumentType(w)}
	}
	switch next := p.next(); {
	case next == "<":
		p.take()
		arg := group(p.alternatives(">"))
		arg.token = w
		return arg
	case next != "" && next != "..." && !strings.Contains("[]|>", next) && !isToken(next):
		p.take()
		return argument{name: next, kind: argumentType(next), token: w}
	}
	return argument{name: strings.ToLower(w), kind: "pure-token", token: w}
}

// addOptional appends the arguments inside square brackets to args. After x, the notation [x ...] adds no argument: it says that x
// may be repeated.
func addOptional(args, inside []argument) []argument {
	n := len(inside)
	if n > 0 && inside[n-1].multiple && n <= len(args) {
		before := args[len(args)-n:]
		if slices.EqualFunc(before, inside, func(a, b argument) bool { return a.name == b.name }) {
			repeated := group(before)
			repeated.multiple = true
			return append(args[:len(args)-n:len(args)-n], repeated)
		}
	}
	if n > 1 && inside[n-1].multiple {
		inside[n-1].multiple = false
		whole := group(inside)
		whole.multiple, whole.optional = true, true
		return append(args, whole)
	}
	whole := group(inside)
	whole.optional = true
	return append(args, whole)
}

// group makes a block of several arguments; one argument stays as it is.
func group(args []argument) argument {
	if len(args) == 1 {
		return args[0]
	}
	return argument{name: joinNames(args), kind: "block", args: slices.Clone(args)}
}

func joinNames(args []argument) string {
	names := make([]string, len(args))
	for i, a := range args {
		names[i] = a.name
	}
	return strings.Join(names, "_")
}

func isToken(w string) bool {
	return strings.ToUpper(w) == w && strings.ContainsAny(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

// argumentType derives an argument's type from its name.
func argumentType(name string) string {
	switch name {
	case "key", "newkey", "source", "destination", "resource":
		return "key"
	case "pattern":
		return "pattern"
	case "unix-time-seconds", "unix-time-milliseconds":
		return "unix-time"
	case "seconds", "milliseconds", "count", "cursor", "index", "index1", "index2", "db", "destination-db",
		"numkeys", "numreplicas", "timeout", "offset", "start", "end", "increment", "decrement", "client-id", "protover", "token",
		"limit", "permits", "minimum":
		return "integer"
	}
	return "string"
}
