package main

import (
	"fmt"
	"strconv"
	"strings"
)

// shrink returns the fewest steps that it finds to lead to a difference, by
// leaving out ever smaller parts (delta debugging: Zeller and Hildebrandt,
// Simplifying and Isolating Failure-Inducing Input). It returns a nil
// difference if the steps do not fail again.
func shrink(p *players, steps []step) ([]step, *difference, error) {
	d, err := p.play(steps)
	if d == nil || err != nil {
		return steps, d, err
	}
	for size := len(steps) / 2; size > 0; {
		removed := false
		for from := 0; from < len(steps); {
			fewer := append(steps[:from:from], steps[min(from+size, len(steps)):]...)
			found, err := p.play(fewer)
			if err != nil {
				return steps, d, err
			}
			if found == nil {
				from += size
				continue
			}
			steps, d, removed = fewer, found, true
		}
		if !removed || size > 1 {
			size /= 2
		}
	}
	return steps, d, nil
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
