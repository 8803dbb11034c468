package peers

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/bench/load"
)

// Clients are spread evenly over the servers of their place.
func TestAt(t *testing.T) {
	var opened []string
	s := &System{nodes: []string{"leader", "second", "third"}, open: func(_, addr string) (load.Session, error) {
		opened = append(opened, addr)
		return nil, nil
	}}
	for place, want := range map[load.Place][]string{
		load.Leader:    {"leader", "leader", "leader", "leader"},
		load.Followers: {"second", "third", "second", "third"},
		load.All:       {"leader", "second", "third", "leader"},
	} {
		opened = nil
		target := s.At(place)
		for range want {
			if _, err := target.Open("me"); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(opened, want) {
			t.Errorf("%q: clients are at %q, want %q", place, opened, want)
		}
	}
}

func TestLeaderFirst(t *testing.T) {
	addrs := []string{"a", "b", "c"}
	leads := func(leader string) func(string) (bool, error) {
		return func(addr string) (bool, error) {
			if addr == "a" {
				return false, errors.New("a is down")
			}
			return addr == leader, nil
		}
	}
	got, err := leaderFirst(addrs, leads("c"))
	if err != nil || !slices.Equal(got, []string{"c", "b", "a"}) || addrs[0] != "a" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := leaderFirst(addrs, leads("nobody")); err == nil || !strings.Contains(err.Error(), "a is down") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLacks(t *testing.T) {
	one := &System{pipelines: true, lacks: map[string]string{"renew": "no renewal"}}
	many := &System{everyNode: true}
	for _, c := range []struct {
		s    *System
		c    load.Case
		want string
	}{
		{one, load.Case{Workload: "cycle", Pipeline: 16, Alive: 1_000_000}, ""},
		{one, load.Case{Workload: "renew", Pipeline: 1}, "no renewal"},
		{one, load.Case{Workload: "expire", Pipeline: 1}, ""},
		{one, load.Case{Workload: "native", Pipeline: 1}, ""},
		{one, load.Case{Workload: "native-cycle", Pipeline: 1}, "no commands for locks"},
		{&System{native: true}, load.Case{Workload: "native-cycle", Pipeline: 1}, ""},
		{one, load.Case{Workload: "cycle", Pipeline: 1, At: load.Followers}, "one server"},
		{many, load.Case{Workload: "cycle", Pipeline: 1, At: load.Followers}, ""},
		{many, load.Case{Workload: "cycle", Pipeline: 16}, "pipeline"},
		{many, load.Case{Workload: "cycle", Pipeline: 1, Alive: patience}, ""},
		{many, load.Case{Workload: "cycle", Pipeline: 1, Alive: patience + 1}, "minutes"},
		{many, load.Case{Workload: "expire", Pipeline: 1}, "minutes"},
	} {
		if got := c.s.Lacks(c.c); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.c, got, c.want)
		}
	}
}

func TestExpiredOf(t *testing.T) {
	const info = "# Stats\r\nexpired_stale_perc:0.00\r\nexpired_keys:1234\r\nevicted_keys:5\r\n"
	if n, err := expiredOf(info); err != nil || n != 1234 {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range []string{"", "expired_keys:many\r\n", "# Stats\r\nevicted_keys:5\r\n"} {
		if n, err := expiredOf(bad); err == nil {
			t.Errorf("%q: %d", bad, n)
		}
	}
}
