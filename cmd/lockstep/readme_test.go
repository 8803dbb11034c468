package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadmesAgree: README.zh-CN.md agrees with README.md in everything that can be compared without knowledge of Chinese.
func TestReadmesAgree(t *testing.T) {
	for _, difference := range differences(read(t, root+"/README.md"), read(t, root+"/README.zh-CN.md")) {
		t.Error(difference)
	}
}

// section is a heading and the text below it. The first section of a document has no heading.
type section struct {
	name   string // its heading
	level  int    // how many # its heading has
	blocks []string
	flags  []string
	spans  []string // text in backquotes
	links  []string
	rows   int // number of rows of all tables
	items  int // number of items of all lists, and of bold beginnings of paragraphs
}

var (
	heading = regexp.MustCompile(`^(#+) `)
	item    = regexp.MustCompile(`^(?:- |\d+\. |\*\*)`)
	anyFlag = regexp.MustCompile("(?:^|[\\s`(\"])--([a-z][a-z0-9-]+)")
	span    = regexp.MustCompile("`([^`]+)`")
	link    = regexp.MustCompile(`\]\(([^)]+)\)`)
)

// sections divides a document at its headings. A line in a code block is no heading.
func sections(text string) []section {
	all := []section{{}}
	inside := false
	for line := range strings.Lines(text) {
		s := &all[len(all)-1]
		switch fence := strings.HasPrefix(line, "```"); {
		case fence && !inside:
			s.blocks = append(s.blocks, line)
			inside = true
			continue
		case inside:
			s.blocks[len(s.blocks)-1] += line
			inside = !fence
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			all = append(all, section{level: len(m[1]), name: strings.TrimSpace(strings.TrimLeft(line, "#"))})
			s = &all[len(all)-1]
		}
		if strings.HasPrefix(line, "|") {
			s.rows++
		}
		if item.MatchString(line) {
			s.items++
		}
		s.flags = append(s.flags, matches(anyFlag, line)...)
		s.spans = append(s.spans, matches(span, line)...)
		for _, target := range matches(link, line) {
			// Each of the two documents links to the other one.
			s.links = append(s.links, strings.Replace(target, "README.zh-CN.md", "README.md", 1))
		}
	}
	return all
}

func matches(pattern *regexp.Regexp, line string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(line, -1) {
		found = append(found, m[1])
	}
	return found
}

// facts returns everything that a section and its translation must have in common. Only the order of code blocks counts.
func (s section) facts() []string {
	facts := []string{fmt.Sprint("level ", s.level), fmt.Sprint(s.rows, " rows of tables"), fmt.Sprint(s.items, " items")}
	for i, block := range s.blocks {
		facts = append(facts, fmt.Sprintf("code block %d: %s", i+1, block))
	}
	for _, flag := range s.flags {
		facts = append(facts, "--"+flag)
	}
	for _, span := range s.spans {
		facts = append(facts, "`"+span+"`")
	}
	for _, link := range s.links {
		facts = append(facts, "link to "+link)
	}
	return facts
}

// without returns the elements that occur more often in x than in y.
func without(x, y []string) (rest []string) {
	y = slices.Clone(y)
	for _, fact := range x {
		if i := slices.Index(y, fact); i >= 0 {
			y = slices.Delete(y, i, i+1)
		} else {
			rest = append(rest, fact)
		}
	}
	return rest
}

// differences returns the differences between a document and its translation.
func differences(original, translation string) (found []string) {
	a, b := sections(original), sections(translation)
	if len(a) != len(b) {
		return []string{fmt.Sprintf("%d headings, and %d in the translation", len(a)-1, len(b)-1)}
	}
	for i := range a {
		x, y := a[i].facts(), b[i].facts()
		if missing, added := without(x, y), without(y, x); len(missing)+len(added) > 0 {
			found = append(found, fmt.Sprintf("below heading %d the translation lacks %q and has %q", i, missing, added))
		}
	}
	return found
}

// TestDifferencesBetweenReadmesAreFound makes one difference of each kind, and checks that it is found.
func TestDifferencesBetweenReadmesAreFound(t *testing.T) {
	const text = "# a\n\n[b](README.md) `c`, then `--listen`\n\n```sh\n# no heading\nlockstep --id n1\n```\n\n## d\n\n| e |\n|---|\n\n- f\n- g\n"
	const translation = "# 一\n\n先 `--listen`,再 `c` [二](README.zh-CN.md)\n\n```sh\n# no heading\nlockstep --id n1\n```\n\n## 四\n\n| 五 |\n|---|\n\n- 六\n- 七\n"
	if found := differences(text, translation); len(found) != 0 {
		t.Errorf("a faithful translation differs: %q", found)
	}
	for _, planted := range []struct{ old, new string }{
		{"## 四", "### 四"},
		{"## 四\n", ""},
		{"--id n1\n", "--id n2\n"},
		{"# no heading", "# 不是标题"},
		{"```sh", "```bash"},
		{"`--listen`", "`--peers`"},
		{"`c`", "c"},
		{"(README.zh-CN.md)", "(docs/README.md)"},
		{"|---|\n", "|---|\n| 八 |\n"},
		{"- 七\n", ""},
	} {
		with := strings.Replace(translation, planted.old, planted.new, 1)
		if with == translation || len(differences(text, with)) == 0 {
			t.Errorf("nobody sees that %q has become %q", planted.old, planted.new)
		}
	}
}
