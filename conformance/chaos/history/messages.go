package history

import (
	"fmt"
	"strings"
)

// Publication is a message that was published once. Without an acknowledgement, it need not have been delivered.
type Publication struct {
	Text           string
	Invoke, Return int64
	Acknowledged   bool
}

// Subscription is what one connection heard, from the confirmation of its SUBSCRIBE until the connection ended.
type Subscription struct {
	Via   string
	Since int64
	Heard []string
}

// CheckMessages returns the violations of this rule: while a connection lives, its subscriber hears all messages once, in one order for
// all.
func CheckMessages(sent []Publication, subs []Subscription) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	known := map[string]*Publication{}
	for i := range sent {
		known[sent[i].Text] = &sent[i]
	}
	places := make([]map[string]int, len(subs))
	for i, s := range subs {
		places[i] = map[string]int{}
		last := s.Since // when the latest message heard so far was sent
		for at, text := range s.Heard {
			if _, again := places[i][text]; again {
				fault("the subscriber at %s heard %s twice", s.Via, text)
			}
			places[i][text] = at
			if p := known[text]; p == nil {
				fault("the subscriber at %s heard %s, which nobody sent", s.Via, text)
			} else {
				last = max(last, p.Invoke)
			}
		}
		var missed []string
		for _, p := range sent {
			if _, heard := places[i][p.Text]; !heard && p.Acknowledged && p.Invoke > s.Since && p.Return < last {
				missed = append(missed, fmt.Sprintf("%s of %.3fs", p.Text, float64(p.Invoke)/1e9))
			}
		}
		if len(missed) > 0 {
			fault("the subscriber at %s since %.3fs heard later messages, but not %s", s.Via, float64(s.Since)/1e9, strings.Join(missed, ", "))
		}
	}
	for i := range subs {
		for j := range i {
			if text := differ(subs[i].Heard, subs[j].Heard, places[j]); text != "" {
				fault("the subscribers at %s and %s differ in what they heard, or in its order, at %s", subs[i].Via, subs[j].Via, text)
			}
		}
	}
	return faults
}

// differ returns where two lists differ between their first and last common message, or "". places has the indexes of b.
func differ(a, b []string, places map[string]int) string {
	first, last := -1, -1
	for i, text := range a {
		if _, both := places[text]; both {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return ""
	}
	from := places[a[first]]
	for i, text := range a[first : last+1] {
		if from+i >= len(b) || b[from+i] != text {
			return text
		}
	}
	return ""
}
