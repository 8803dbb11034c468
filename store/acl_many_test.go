package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestManyRules: the time to apply, to describe and to read back rules grows in proportion to their number.
func TestManyRules(t *testing.T) {
	const few, many = 5_000, 50_000
	took := map[string][]time.Duration{}
	for _, n := range []int{few, many} {
		for name, rules := range manyRules(n) {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				start := time.Now()
				testRules(t, name, rules, n)
				took[name] = append(took[name], time.Since(start))
			})
		}
	}
	for name, took := range took {
		// A quadratic algorithm would take a hundred times as long.
		if len(took) == 2 && took[1] > 40*took[0]+time.Second {
			t.Errorf("%s: %d take %v, %d take %v", name, few, took[0], many, took[1])
		}
	}
}

// manyRules returns lists of rules for several cases. Most have n rules, some have n rules of each of two kinds.
func manyRules(n int) map[string][]string {
	each := func(format string) (rules []string) {
		for i := range n {
			rules = append(rules, strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
		}
		return rules
	}
	halves := func(format string) []string { // n/5 selectors of about five rules each: %c stands for one, two or three rules, in turn
		rules := each(format)[:n/5]
		for i := range rules {
			rules[i] = strings.ReplaceAll(rules[i], "%c", "-get +set -del "[:i%3*5]+"+incr")
		}
		return rules
	}
	return map[string][]string{
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
	}
}

// testRules applies rules to a user, describes them and reads them back.
func testRules(t *testing.T, name string, rules []string, n int) {
	table := NewTable(Commands())
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
	if strings.HasPrefix(name, "keys") && (len(u.selectors[0].keys) != n || back.String() != u.String()) {
		t.Errorf("%d keys", len(u.selectors[0].keys))
	}
	_ = back.Describe()
	u.LosesChannels(back)
}
