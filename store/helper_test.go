package store

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// testDB runs commands as one client would, each in a transaction of its own, at a time that the test sets.
type testDB struct {
	t     testing.TB
	s     *Store
	table *Table
	now   Time
	seq   uint64
	db    int
	resp  int
	env   Env
	sink  Sink
	wrote int // number of writes of the last command
}

func newTestDB(t testing.TB) *testDB {
	return &testDB{
		t: t, s: New(), table: NewTable(Commands()), resp: 2,
		now: Time{Lease: 1_000_000, Wall: 1_700_000_000_000_000},
	}
}

// advance moves both clocks.
func (d *testDB) advance(ms int64) {
	d.now.Lease += ms
	d.now.Wall += ms * 1000
}

func (d *testDB) begin() *Txn { return d.s.Begin(d.now, d.seq+1, d.env) }

func (d *testDB) apply(txn *Txn) {
	d.t.Helper()
	d.wrote = txn.Writes().Len()
	if d.wrote == 0 {
		return
	}
	d.seq++
	log := bytes.Clone(txn.Writes().Bytes())
	if err := d.s.Apply(log, d.seq, d.sink); err != nil {
		d.t.Fatal(err)
	}
	// The store must not keep the bytes of the log, so overwrite them.
	for i := range log {
		log[i] = '!'
	}
}

// run runs one command in a transaction.
func (d *testDB) run(txn *Txn, args ...string) Reply {
	d.t.Helper()
	raw := make([][]byte, len(args))
	for i, a := range args {
		raw[i] = []byte(a)
	}
	cmd, ok := d.table.Resolve(raw)
	if !ok || !cmd.ArityOK(len(raw)) {
		d.t.Fatalf("%q is not a command", args)
	}
	c := &Ctx{Txn: txn, Cmd: cmd, Args: raw, DB: d.db, RESP: d.resp}
	r := cmd.Run(c)
	d.db = c.DB
	// A handler must not keep the arguments, because the server uses their memory again. So overwrite them.
	for _, arg := range raw {
		for i := range arg {
			arg[i] = '!'
		}
	}
	return r
}

// do runs one command and returns its reply as text.
func (d *testDB) do(args ...string) string {
	d.t.Helper()
	txn := d.begin()
	r := d.run(txn, args...)
	d.apply(txn)
	return render(r)
}

// script runs lines of the form "COMMAND args => reply". A line "@advance 10"
// moves the clocks; double quotes hold words with spaces.
func (d *testDB) script(text string) {
	d.t.Helper()
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if ms, ok := strings.CutPrefix(line, "@advance "); ok {
			n, err := strconv.ParseInt(ms, 10, 64)
			if err != nil {
				d.t.Fatal(err)
			}
			d.advance(n)
			continue
		}
		call, want, _ := strings.Cut(line, " => ")
		if got := d.do(words(call)...); got != want {
			d.t.Errorf("%s\n got  %s\n want %s", call, got, want)
		}
	}
}

// words splits at spaces outside of double quotes.
func words(line string) (list []string) {
	quoted, open := false, false
	var word []byte
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			quoted, open = !quoted, true
		case c == ' ' && !quoted:
			if open {
				list = append(list, string(word))
			}
			word, open = nil, false
		default:
			word, open = append(word, c), true
		}
	}
	if open {
		list = append(list, string(word))
	}
	return list
}

func render(r Reply) string {
	switch r.Kind {
	case Null:
		return "nil"
	case NullArray:
		return "nil-array"
	case Simple:
		return "+" + r.Str
	case Failure:
		return "-" + r.Str
	case Integer:
		return ":" + strconv.FormatInt(r.Int, 10)
	case Bulk:
		return strconv.Quote(r.Str)
	case Double:
		return "," + FormatFloat(r.Float())
	}
	parts := make([]string, len(r.Elems))
	for i, e := range r.Elems {
		parts[i] = render(e)
	}
	list := strings.Join(parts, " ")
	switch r.Kind {
	case Array:
		return "[" + list + "]"
	case Map:
		return "{" + list + "}"
	case Set:
		return "~[" + list + "]"
	}
	return fmt.Sprintf("kind %d", r.Kind)
}

// sortedReply renders a list without regard to its order.
func sortedReply(r Reply) string {
	parts := make([]string, len(r.Elems))
	for i, e := range r.Elems {
		parts[i] = render(e)
	}
	sort.Strings(parts)
	return "[" + strings.Join(parts, " ") + "]"
}

// dump lists everything that a transaction sees.
func dump(txn *Txn) string {
	var b strings.Builder
	for db := range Databases {
		txn.Ascend(db, 0, func(e *Entry) bool {
			fmt.Fprintf(&b, "%d %q created %d changed %d leased %d ", db, e.key, e.token, e.changed, e.leased)
			b.WriteString(valueText(e))
			b.WriteByte('\n')
			return true
		})
	}
	return b.String()
}

// valueText returns the type, the value and the deadline of an entry.
func valueText(e *Entry) string {
	var elems []string
	switch v := e.collection().(type) {
	case nil:
		return fmt.Sprintf("%q until %d", e.str, e.deadline)
	case *Hash:
		v.Each(func(f Field) bool {
			elems = append(elems, fmt.Sprintf("%q=%q", f.Name, f.Value))
			return true
		})
		sort.Strings(elems)
	case *Deque:
		v.Each(0, func(value string) bool {
			elems = append(elems, strconv.Quote(value))
			return true
		})
	case *MemberSet:
		v.Each(func(name string) bool {
			elems = append(elems, strconv.Quote(name))
			return true
		})
		sort.Strings(elems)
	case *SortedSet:
		v.Each(0, func(m Scored) bool {
			elems = append(elems, fmt.Sprintf("%q:%s", m.Member, FormatFloat(m.Score)))
			return true
		})
	}
	return fmt.Sprintf("%s %v until %d", e.typ, elems, e.deadline)
}

// encode returns the bytes of a snapshot of the present state.
func encode(t testing.TB, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Snapshot().Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
