package cluster

import (
	"log/slog"
	"testing"

	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/store"
)

// The hot path makes few allocations for one request. The limits are the measured numbers.
func TestHotPathAllocations(t *testing.T) {
	if testing.CoverMode() != "" {
		t.Skip("coverage counts")
	}
	cfg := Default()
	cfg.Ephemeral, cfg.Time, cfg.Logger = true, NewSystemTime(), slog.New(slog.DiscardHandler)
	cfg.Fatal = func(err error) { t.Error(err) }
	engine := luavm.New(luavm.Options{Now: cfg.Time.Monotonic})
	cfg.Table = store.NewTable(store.Commands(), engine.Commands())
	engine.Bind(cfg.Table)
	cfg.Scripts = engine
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	call := func(args ...string) []Call {
		c := Call{RESP: 2, User: store.SystemUser}
		for _, a := range args {
			c.Args = append(c.Args, []byte(a))
		}
		var ok bool
		if c.Cmd, ok = cfg.Table.Resolve(c.Args); !ok {
			t.Fatal(args)
		}
		return []Call{c}
	}
	const unlock = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	replies := n.Submit(call("SCRIPT", "LOAD", unlock), nil)
	lock := call("SET", "lock", "0123456789abcdef", "NX", "PX", "30000")
	release := call("EVALSHA", replies[0].Str, "1", "lock", "0123456789abcdef")
	foreign := call("SET", "taken", "me", "NX", "PX", "30000")
	n.Submit(foreign, nil)
	for _, c := range []struct {
		name  string
		calls [][]Call
		limit float64
	}{
		{"SET NX PX and the unlock script", [][]Call{lock, release}, 16},
		{"SET NX PX of a held lock", [][]Call{foreign}, 4},
	} {
		got := testing.AllocsPerRun(2000, func() {
			for _, calls := range c.calls {
				replies = n.Submit(calls, replies)
				if replies[0].IsError() {
					t.Fatal(replies[0].Str)
				}
			}
		})
		limit := c.limit
		if underRace {
			limit += float64(len(c.calls)) // the race detector makes pools drop what they hold, at random
		}
		if got > limit {
			t.Errorf("%s: %.1f allocations, limit %.0f", c.name, got, limit)
		}
	}
}
