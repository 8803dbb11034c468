package fair

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A new leader learns the shortest limits, and adds what the users have regained since. A shorter limit of its own stays.
func TestOverrunsAreLearned(t *testing.T) {
	const full = 5 * time.Second
	now := time.Hour
	var last, next Limits
	for range 4 {
		last.Note("endless", ms, full, now)
	}
	last.Spend("slow", 2*time.Second+GraceTime, full, now)
	last.Note(strings.Repeat("long", 100), ms, full, now)
	told := last.Tell(full, now)
	if want := []Overrun{{User: everyone, Spent: 2*time.Second + GraceTime}, {User: "endless", Halvings: 4}, {User: "slow", Spent: 2 * time.Second}}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %+v, want %+v", told, want)
	}
	next.Note("endless", ms, full, now)
	next.Learn(told, 0, full, now)
	for user, want := range map[string]time.Duration{"endless": full >> 4, "slow": 3 * time.Second, "other": full} {
		if got := next.Limit(user, full, now); got != want {
			t.Errorf("%s has %v, want %v", user, got, want)
		}
	}
	next.Note("endless", ms, full, now)
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
			last.Note(fmt.Sprint("user", i), ms, full, now)
		}
	}
	if told = last.Tell(full, now); len(told) != ToldUsers || told[0].User != everyone || told[1].Halvings < told[ToldUsers-1].Halvings || told[ToldUsers-1].Halvings < 5 {
		t.Errorf("of many users: %+v", told)
	}
}

// If many users keep others waiting, each below its limit, the limits of all shrink, down to GraceTime, also at the next leader.
func TestUsersTogether(t *testing.T) {
	const full = 5 * time.Second
	for name, spend := range map[string]func(l *Limits, user string, now time.Duration){
		"work that ends": func(l *Limits, user string, now time.Duration) { l.Spend(user, time.Second, full, now) },
		"stopped work":   func(l *Limits, user string, now time.Duration) { l.Note(user, time.Second, full, now) },
	} {
		var l, next Limits
		now := time.Hour
		limit := func() time.Duration { return l.Limit("another", full, now).Round(100 * ms) }
		for i := range 40 {
			if got, want := limit(), min(max(full-time.Duration(i-5)*time.Second, GraceTime), full); got != want {
				t.Errorf("%s: after %d s there are %v, want %v", name, i, got, want)
			}
			spend(&l, fmt.Sprint("user", i), now)
		}
		next.Learn(l.Tell(full, now), 0, full, now)
		if got := next.Limit("another", full, now); got != GraceTime {
			t.Errorf("%s: at the next leader: %v", name, got)
		}
		if now += GraceMemory / 2; limit() != full/2 {
			t.Errorf("%s: after half the memory: %v", name, limit())
		}
		if now += GraceMemory / 2; limit() != full {
			t.Errorf("%s: after the memory: %v", name, limit())
		}
		for range 100 {
			l.Spend("brief", GraceTime, full, now)
			l.Note("brief", LeastTime, full, now)
		}
		if limit() != full {
			t.Errorf("%s: short work counts: %v", name, limit())
		}
		now += GraceMemory
		for range 20 {
			spend(&l, "one", now)
		}
		if limit() != full {
			t.Errorf("%s: one user shortens the limits of others: %v", name, limit())
		}
	}
}
