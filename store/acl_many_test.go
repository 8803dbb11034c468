package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A user may have as many rules as a command holds: to give them, to tell of them and to read
// them back takes a time that grows as their number does.
func TestManyRules(t *testing.T) {
	const many, enough = 50_000, 8 * time.Second
	table := NewTable(Commands())
	each := func(format string) (rules []string) {
		for i := range many {
			rules = append(rules, strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
		}
		return rules
	}
	halves := func(format string) []string { // of ever other commands
		rules := each(format)[:many/5]
		for i := range rules {
			rules[i] = strings.ReplaceAll(rules[i], "%c", "-get +set -del "[:i%3*5]+"+incr")
		}
		return rules
	}
	for name, rules := range map[string][]string{
		"keys":           each("~a%d"),
		"keys to read":   each("%R~a%d"),
		"channels":       each("&a%d"),
		"first words":    append([]string{"-@all"}, each("+get|a%d")...),
		"commands":       each("+get"),
		"categories":     slices.Concat([]string{"+get|a"}, each("+@read"), each("-@write")),
		"passwords":      each(">a%d"),
		"no passwords":   slices.Concat(each(">a%d"), each("<a%d")),
		"selectors":      each("(~a%d)"),
		"rich selectors": halves("(+@all -@dangerous %c)"),
		"one selector":   slices.Concat([]string{"("}, each("~a%d"), []string{")"}),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			merged, open := MergeSelectors(rules)
			if open != "" {
				t.Fatal(open)
			}
			u, refusal := NewUser(table, "u", false).WithRules(merged, false)
			if refusal != "" {
				t.Fatal(refusal)
			}
			again, refusal := u.WithRules(merged, false)
			if refusal != "" {
				t.Fatal(refusal)
			}
			back := userOf(table, "u", decodeRules(again.Packed()))
			if strings.HasPrefix(name, "keys") && (len(u.selectors[0].keys) != many || back.String() != u.String()) {
				t.Errorf("%d keys", len(u.selectors[0].keys))
			}
			_ = back.Describe()
			u.LosesChannels(back)
			if took := time.Since(start); took > enough {
				t.Errorf("took %v", took)
			}
		})
	}
}
