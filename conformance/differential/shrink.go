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
	for _, s := range steps {
		if s.resp3 {
			b.WriteString("# over RESP3\n")
		}
		switch s.how {
		case sorted:
			b.WriteString("@sorted\n")
		case shape:
			b.WriteString("@shape\n")
		}
		b.WriteString(">")
		for _, a := range s.args {
			fmt.Fprintf(&b, " %s", strconv.QuoteToASCII(a))
		}
		b.WriteString("\n")
		if s.wait > 0 {
			fmt.Fprintf(&b, "@advance %v\n", s.wait)
		}
	}
	return b.String()
}
