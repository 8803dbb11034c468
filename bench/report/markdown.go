package report

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// WriteMarkdown writes the report into a document, between the marks of a section, in place of the text there. So nobody types a
// figure by hand.
func (r *Report) WriteMarkdown(file, section string) error {
	head, tail, err := Section(file, section)
	if err != nil {
		return err
	}
	return os.WriteFile(file, slices.Concat(head, []byte(r.markdown()), tail), 0o644)
}

// Section returns the text before and after a section of a document, including the section's marks.
func Section(file, section string) (head, tail []byte, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	begin, end := mark(section), mark("end of "+section)
	from, to := bytes.Index(b, []byte(begin)), bytes.Index(b, []byte(end))
	if from < 0 || to < from {
		return nil, nil, fmt.Errorf("%s has no section between %s and %s", file, begin, end)
	}
	return b[:from+len(begin)], b[to:], nil
}

func mark(name string) string { return "<!-- " + name + " -->" }

func (r *Report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n\nMeasured with `%s`:\n\n%s.\n", r.Command, strings.ReplaceAll(r.about(), "\n", "; "))
	if t := r.checkTable(); len(t.rows) > 0 {
		fmt.Fprintf(&b, "\n### What is promised\n\n")
		t.writeMarkdown(&b)
		for i, c := range r.unmeasured() {
			if i == 0 {
				fmt.Fprintf(&b, "\nNot measured in this run:\n\n")
			}
			fmt.Fprintf(&b, "- %v\n", c)
		}
	}
	fmt.Fprintf(&b, "\n### Figures\n\n")
	r.peerTable().writeMarkdown(&b)
	for _, c := range r.cases() {
		fmt.Fprintf(&b, "\n**%s**\n", c)
		if t := r.caseTable(c); len(t.rows) > 0 {
			b.WriteString("\n")
			t.writeMarkdown(&b)
		}
		if lines := r.notes(c); len(lines) > 0 {
			fmt.Fprintf(&b, "\n- %s\n", strings.Join(lines, "\n- "))
		}
	}
	fmt.Fprintf(&b, "\n%s\n\n", legend)
	return b.String()
}
