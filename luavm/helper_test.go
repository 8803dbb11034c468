package luavm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// world is an engine over a store in memory.
type world struct {
	e     *Engine
	table *store.Table
	txn   *store.Txn

	stopAfter time.Duration // of the next commands …
	stopKept  time.Duration // …
	forNow    bool          // … and whether the last one was stopped for that
	tookAll   bool          // TookAll of the last command
	usedUp    time.Duration // ScriptTime of the next commands
}

func newWorld(tb testing.TB, opts Options) *world {
	tb.Helper()
	e := New(opts)
	w := &world{e: e}
	w.table = store.NewTable(store.Commands(), e.Commands(), testCommands())
	e.Bind(w.table)
	w.reset()
	return w
}

// reset makes the keyspace empty again.
func (w *world) reset() {
	w.txn = store.New().Begin(store.Time{Lease: 1, Wall: 1_700_000_000_000_000}, 1, store.Env{})
}

// do runs a command as the server would.
func (w *world) do(resp int, args ...string) store.Reply {
	c := &store.Ctx{Txn: w.txn, RESP: resp, StopAfter: w.stopAfter, StopKept: w.stopKept, ScriptTime: w.usedUp}
	defer func() { w.forNow, w.tookAll = c.StoppedForNow, c.TookAll }()
	for _, a := range args {
		c.Args = append(c.Args, []byte(a))
	}
	cmd, ok := w.table.Resolve(c.Args)
	if !ok || !cmd.ArityOK(len(args)) {
		return store.Err(store.ErrWrongArgs(args[0]))
	}
	c.Cmd = cmd
	return cmd.Run(c)
}

func (w *world) eval(script string, keysAndArgs ...string) store.Reply {
	n := len(keysAndArgs)
	return w.do(2, append([]string{"eval", script, strconv.Itoa(n)}, keysAndArgs...)...)
}

// testCommands returns stand-ins for commands that the server implements. It also returns commands whose replies have types that no
// data command has.
func testCommands() []store.Command {
	fixed := func(name string, r store.Reply) store.Command {
		return store.Command{Name: name, Arity: -1, Flags: store.ReadOnly, Group: "test", Run: func(*store.Ctx) store.Reply { return r }}
	}
	return []store.Command{
		fixed("t.map", store.MapOf(store.Str("a"), store.Int(1), store.Str("b"), store.Nil)),
		fixed("t.set", store.Reply{Kind: store.Set, Elems: []store.Reply{store.Str("m")}}),
		fixed("t.double", store.Float(3.5)),
		fixed("t.true", store.Reply{Kind: store.Bool, Int: 1}),
		fixed("t.big", store.Reply{Kind: store.BigNumber, Str: "12345678901234567890"}),
		fixed("t.text", store.Text("hello")),
		fixed("t.null", store.Nil),
		fixed("ping", store.Status("PONG")),
		{Name: "echo", Arity: 2, Flags: store.Fast, Group: "connection", Run: func(c *store.Ctx) store.Reply { return store.Str(c.Arg(1)) }},
		{Name: "auth", Arity: -2, Flags: store.NoScript, Group: "connection"},
		{Name: "subscribe", Arity: -2, Flags: store.NoScript | store.PubSub, Group: "pubsub"},
		{Name: "multi", Arity: 1, Flags: store.NoScript, Group: "transactions"},
	}
}

// wire encodes a reply as the server sends it.
func wire(r store.Reply, resp int) string {
	var b strings.Builder
	appendWire(&b, r, resp)
	return b.String()
}

func appendWire(b *strings.Builder, r store.Reply, resp int) {
	list := func(mark byte, n int) {
		fmt.Fprintf(b, "%c%d\r\n", mark, n)
		for _, x := range r.Elems {
			appendWire(b, x, resp)
		}
	}
	bulk := func(s string) { fmt.Fprintf(b, "$%d\r\n%s\r\n", len(s), s) }
	switch r.Kind {
	case store.Null:
		b.WriteString(map[int]string{2: "$-1\r\n", 3: "_\r\n"}[resp])
	case store.Simple:
		fmt.Fprintf(b, "+%s\r\n", r.Str)
	case store.Failure:
		fmt.Fprintf(b, "-%s\r\n", r.Str)
	case store.Integer:
		fmt.Fprintf(b, ":%d\r\n", r.Int)
	case store.Bulk:
		bulk(r.Str)
	case store.Array:
		list('*', len(r.Elems))
	case store.Map:
		if resp == 3 {
			list('%', len(r.Elems)/2)
		} else {
			list('*', len(r.Elems))
		}
	case store.Set:
		list(map[int]byte{2: '*', 3: '~'}[resp], len(r.Elems))
	case store.Double:
		if s := store.FormatFloat(r.Float()); resp == 3 {
			fmt.Fprintf(b, ",%s\r\n", s)
		} else {
			bulk(s)
		}
	case store.Bool:
		switch {
		case resp == 2:
			fmt.Fprintf(b, ":%d\r\n", r.Int)
		case r.Int == 1:
			b.WriteString("#t\r\n")
		default:
			b.WriteString("#f\r\n")
		}
	case store.BigNumber:
		if resp == 3 {
			fmt.Fprintf(b, "(%s\r\n", r.Str)
		} else {
			bulk(r.Str)
		}
	case store.Verbatim:
		if resp == 3 {
			fmt.Fprintf(b, "=%d\r\n%s\r\n", len(r.Str), r.Str)
		} else {
			bulk(r.Str[4:])
		}
	default:
		fmt.Fprintf(b, "?%d\r\n", r.Kind)
	}
}
