package redissuite

import (
	"regexp"
	"strings"
)

// Report is what the suite reported about one file.
type Report struct {
	Passed, Skipped []string       // names of tests
	Failed          []string       // names of tests, with what the suite says about them
	Ignored         map[string]int // tests left out, counted by reason, such as a tag; one may be a whole block of tests
	Done            bool           // the suite came to the end of the file
}

var (
	colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
	status  = regexp.MustCompile(`^\[(ok|err|exception|skip|ignore|TIMEOUT|\d+/\d+ done)\]: (.*)$`)
	elapsed = regexp.MustCompile(` \(\d+ ms\)$`)
)

// ReadReport reads what the suite prints.
func ReadReport(out string) Report {
	r := Report{Ignored: map[string]int{}}
	out, _, _ = strings.Cut(colours.ReplaceAllString(out, ""), "\n                   The End\n")
	failing := false
	for line := range strings.SplitSeq(out, "\n") {
		m := status.FindStringSubmatch(line)
		if m == nil {
			if failing {
				r.Failed[len(r.Failed)-1] += "\n" + line
			}
			continue
		}
		failing = false
		switch what, text := m[1], m[2]; what {
		case "ok":
			r.Passed = append(r.Passed, elapsed.ReplaceAllString(text, ""))
		case "skip":
			r.Skipped = append(r.Skipped, text)
		case "ignore":
			reason := text
			if i := strings.LastIndex(text, ": "); i >= 0 && !strings.HasPrefix(text, "Tag: ") {
				reason = text[i+2:]
				if strings.HasSuffix(text[:i], ": Tag") {
					reason = "Tag: " + reason
				}
			}
			r.Ignored[reason]++
		case "err", "exception", "TIMEOUT":
			r.Failed, failing = append(r.Failed, text), true
		default:
			r.Done = true
		}
	}
	return r
}
