package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/conformance/shrink"
)

// fewest shrinks the steps that lead to a difference. The difference is nil if the given steps no longer lead to one.
func fewest(p *players, steps []step) ([]step, *difference, error) {
	d, err := p.play(steps)
	if d == nil || err != nil {
		return steps, d, err
	}
	steps, err = shrink.List(steps, func(fewer []step) (bool, error) {
		found, err := p.play(fewer)
		if found != nil {
			d = found
		}
		return found != nil, err
	})
	return steps, d, err
}

// asTranscript writes steps as a file of the corpus.
func asTranscript(steps []step) string {
	var b strings.Builder
	at, known := "main", map[string]bool{"main": true}
	use := func(name string, resp3 bool) {
		if name != at {
			fmt.Fprintf(&b, "@conn %s\n", name)
		}
		if resp3 && !known[name] {
			b.WriteString("@hello 3\n")
		}
		at, known[name] = name, true
	}
	for _, s := range steps {
		name := "main"
		if s.resp3 {
			name = "resp3"
		}
		if s.waiter == 0 {
			use(name, s.resp3)
			writeStep(&b, s)
			continue
		}
		name = fmt.Sprintf("waiter%d", s.waiter)
		if s.args == nil {
			use("main", false)
			fmt.Fprintf(&b, "> CLIENT UNBLOCK ${id:%s}\n", name)
			use(name, false)
			b.WriteString("@push\n")
			continue
		}
		first := !known[name]
		use(name, s.waiter == waiters)
		if first {
			fmt.Fprintf(&b, "@type\n> ECHO ${id:%s}\n", name)
		}
		b.WriteString("@noreply\n")
		writeStep(&b, s)
		b.WriteString("@sleep 50ms\n")
	}
	return b.String()
}

func writeStep(b *strings.Builder, s step) {
	switch s.how {
	case sorted:
		b.WriteString("@sorted\n")
	case pairs:
		b.WriteString("@sortedpairs\n")
	case shape:
		b.WriteString("@shape\n")
	}
	b.WriteString(">")
	for _, a := range s.args {
		fmt.Fprintf(b, " %s", strconv.QuoteToASCII(a))
	}
	b.WriteString("\n")
	if s.expires {
		b.WriteString("@advance 100ms\n")
	}
}
