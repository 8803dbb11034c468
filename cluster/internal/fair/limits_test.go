package fair

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestOverrunsAreLearned: the next leader learns which users have the least time left, and gives them what they have regained since
// then. A limit that the node itself has lowered further stays.
func TestOverrunsAreLearned(t *testing.T) {
	const full = 5 * time.Second
	now := time.Hour
	var last, next Limits
	for range 4 {
		last.Note("endless", full, now)
	}
	last.Spend("slow", 2*time.Second, full, now)
	last.Note(strings.Repeat("long", 100), full, now)
	told := last.Tell(full, now)
	if want := []Overrun{{User: "endless", Halvings: 4}, {User: "slow", Spent: 2 * time.Second}}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %+v, want %+v", told, want)
	}
	next.Note("endless", full, now)
	next.Learn(told, 0, full, now)
	for user, want := range map[string]time.Duration{"endless": full >> 4, "slow": 3 * time.Second, "other": full} {
		if got := next.Limit(user, full, now); got != want {
			t.Errorf("%s has %v, want %v", user, got, want)
		}
	}
	next.Note("endless", full, now)
	next.Learn(told, 0, full, now)
	if got := next.Limit("endless", full, now); got != full>>5 {
		t.Errorf("%v, but this node has stopped the user itself", got)
	}
	var late Limits
	late.Learn(told, 2*OverrunMemory+time.Second, full, now)
	if got := late.Limit("endless", full, now); got != full>>2 {
		t.Errorf("two minutes later the user has %v, want %v", got, full>>2)
	}
	late = Limits{}
	late.Learn(told, time.Hour, full, now)
	if got := late.Tell(full, now); len(got) > 0 {
		t.Errorf("an hour later: %+v", got)
	}
	late = Limits{}
	late.Learn([]Overrun{{User: "rushes", Halvings: 6}}, 0, full, now)
	late.Learn([]Overrun{{User: "rushes", Halvings: 6, Rush: 2}}, 0, full, now)
	if got := late.Tell(full, now); len(got) != 1 || got[0].Rush != 2 {
		t.Errorf("of equal halvings: %+v", got)
	}
	for i := range 2 * ToldUsers {
		for range i + 1 {
			last.Note(fmt.Sprint("user", i), full, now)
		}
	}
	if told = last.Tell(full, now); len(told) != ToldUsers || told[0].Halvings < told[ToldUsers-1].Halvings || told[ToldUsers-1].Halvings < 5 {
		t.Errorf("of many users: %+v", told)
	}
}
