package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/lock"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
)

// The commands that show the locks of all clients, and end one.

const (
	// mostLocksReply is how many bytes of memory a reply about locks may take: the name of an owner may have megabytes.
	mostLocksReply = 64 << 20
	// locksPage is how many keys a node looks at for one page of locks. Meanwhile it serves nobody else.
	locksPage = 1000
	// widestName is how many characters of a name fit into a column.
	widestName = 48
)

// locksCommand is one of these commands, with the flags that they share.
type locksCommand struct {
	adminOptions
	outputOptions
	databaseOptions
}

// databaseOptions choose a database.
type databaseOptions struct{ db int }

func (o *databaseOptions) define(fs *flag.FlagSet) {
	fs.IntVar(&o.db, "db", 0, "`number` of the database (default 0)")
}

// parse parses the command line of the command name, which may have flags of its own.
func (o *locksCommand) parse(name string, args []string, stdout io.Writer, own ...func(*flag.FlagSet)) (rest []string, err error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	for _, define := range append(own, o.adminOptions.define, o.outputOptions.define, o.databaseOptions.define) {
		define(fs)
	}
	return parseMixed(fs, args, stdout)
}

// open connects to a node and selects the database.
func (o *locksCommand) open() (*askedNode, error) {
	n, err := openNode(o.adminOptions)
	if err != nil {
		return nil, err
	}
	n.c.Most = mostLocksReply
	if o.db != 0 {
		if _, err := n.ask("SELECT", strconv.Itoa(o.db)); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

// locksOptions are the flags of `lockstep locks`, besides those of all commands.
type locksOptions struct {
	match, kind, owner, client, sort string
	waiters, limit                   int64
	minAge                           time.Duration
}

func (o *locksOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.match, "match", "", "`pattern` of names, as of SCAN (default: all)")
	fs.StringVar(&o.kind, "kind", "", "`kind` of lock: plain, redisson … (docs/locks.md lists them; default: all)")
	fs.StringVar(&o.owner, "owner", "", "`pattern` of owners (default: all)")
	fs.StringVar(&o.client, "client", "", "`pattern` of the clients that hold locks: their names, addresses, or nodes and ids such as n1:7 (default: all)")
	fs.StringVar(&o.sort, "sort", "", "`age|waiters|ttl`: the oldest first, those with most waiters, or those that end first; 1000 locks at most")
	fs.DurationVar(&o.minAge, "min-age", 0, "for how `long` a lock has been held, at least")
	fs.Int64Var(&o.waiters, "min-waiters", 0, "`number` of clients that wait for a lock, at least")
	fs.Int64Var(&o.limit, "limit", 0, "`number` of locks to show at most; 0: all")
}

// words returns the arguments of LOCK.LIST.
func (o *locksOptions) words() (words []string) {
	for _, w := range [][2]string{{"MATCH", o.match}, {"KIND", o.kind}, {"OWNER", o.owner}, {"CLIENT", o.client}, {"SORT", o.sort}} {
		if w[1] != "" {
			words = append(words, w[0], w[1])
		}
	}
	if o.waiters > 0 {
		words = append(words, "WAITERS", strconv.FormatInt(o.waiters, 10))
	}
	if o.minAge > 0 {
		words = append(words, "MINAGE", strconv.FormatInt(o.minAge.Milliseconds(), 10))
	}
	return words
}

// listLocks runs `lockstep locks`.
func listLocks(args []string, stdout io.Writer) error {
	var c locksCommand
	var o locksOptions
	rest, err := c.parse("locks", args, stdout, o.define)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return usageError{fmt.Errorf("locks: unexpected argument %q: want --match %s, or lockstep lock-info %s", rest[0], rest[0], rest[0])}
	case o.waiters < 0 || o.limit < 0 || o.minAge < 0:
		return usageError{errors.New("--min-waiters, --limit and --min-age: want a number from 0 on")}
	}
	n, err := c.open()
	if err != nil {
		return err
	}
	defer n.close()
	var to rows = holders{show.NewTable(stdout, widestName)}
	if c.json {
		to = &jsonRows{w: stdout}
	}
	found, err := copyLocks(n, o, to)
	if err != nil {
		return c.otherwise(err)
	}
	if j, is := to.(*jsonRows); is {
		return j.end()
	}
	if found == 0 {
		_, err = fmt.Fprintln(stdout, "no locks")
	}
	return err
}

// rows prints the rows of a table, of which parts come one after the other.
type rows interface {
	Add(part []show.Record) error
}

// holders is a table in which two columns say which client holds a lock, and for how long.
type holders struct{ *show.Table }

func (h holders) Add(part []show.Record) error {
	for i, r := range part {
		part[i] = heldBy(r)
	}
	return h.Table.Add(part)
}

// heldBy puts the fields about the client of a lock together.
func heldBy(r show.Record) show.Record {
	var client, node, addr, name string
	age, aged, held := int64(-1), false, false
	out := make(show.Record, 0, len(r))
	for _, f := range r {
		text, isText := f.Value.(string)
		switch f.Name {
		case "age":
			age, aged = asNumber(f.Value)
		case "node":
			node, held = text, true
		case "client":
			if n, ok := asNumber(f.Value); ok {
				client = strconv.FormatInt(n, 10)
			}
		case "addr":
			if addr = text; isText && text == "" {
				addr = "gone"
			}
		case "name":
			name = text
		default:
			out = append(out, f)
		}
	}
	if aged {
		since := ""
		if age >= 0 {
			since = (time.Duration(age) * time.Millisecond).String()
		}
		out = append(out, show.Field{Name: "held for", Value: since})
	}
	if held {
		who := ""
		if node != "" {
			who = strings.Join(strings.Fields(name+" "+addr+" "+node+":"+client), " ")
		}
		out = append(out, show.Field{Name: "client", Value: who})
	}
	return out
}

func asNumber(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	}
	return 0, false
}

// jsonRows prints rows as one JSON list, a line for each row.
type jsonRows struct {
	w     io.Writer
	begun bool
}

func (j *jsonRows) Add(part []show.Record) error {
	var b []byte
	for _, r := range part {
		if j.begun {
			b = append(b, ",\n"...)
		} else {
			b = append(b, "[\n"...)
		}
		j.begun = true
		b = show.AppendJSON(b, r)
	}
	_, err := j.w.Write(b)
	return err
}

// end ends the list. After an error nobody calls it, so that no program takes a part of the list for the whole.
func (j *jsonRows) end() error {
	text := "\n]\n"
	if !j.begun {
		text = "[]\n"
	}
	_, err := io.WriteString(j.w, text)
	return err
}

// copyLocks reads the pages of LOCK.LIST, and prints their rows. It keeps one page in memory.
func copyLocks(n *askedNode, o locksOptions, to rows) (found int64, err error) {
	if o.sort != "" && (o.limit == 0 || o.limit > locksPage) {
		o.limit = locksPage
	}
	for cursor := uint64(0); ; {
		command := append([]string{"LOCK.LIST", "CURSOR", strconv.FormatUint(cursor, 10), "COUNT", strconv.Itoa(locksPage)}, o.words()...)
		if o.sort != "" {
			command[4] = strconv.FormatInt(o.limit, 10)
		}
		reply, err := n.ask(command...)
		if err != nil {
			return found, err
		}
		next, page, err := lockPage(reply)
		if err != nil {
			return found, err
		}
		if o.limit > 0 {
			page = page[:min(int64(len(page)), o.limit-found)]
		}
		found += int64(len(page))
		if err := to.Add(page); err != nil {
			return found, err
		}
		if next == 0 || found == o.limit && o.limit > 0 {
			return found, nil
		}
		if next <= cursor {
			return found, show.FormError(fmt.Sprintf("cursor %d behind cursor %d", next, cursor)) // it would have no end
		}
		cursor = next
	}
}

// lockPage takes a reply to LOCK.LIST apart.
func lockPage(reply any) (next uint64, page []show.Record, err error) {
	pair, ok := reply.([]any)
	if !ok || len(pair) != 2 {
		return 0, nil, show.Unlike(reply)
	}
	text, ok := pair[0].(string)
	if next, err = strconv.ParseUint(text, 10, 64); !ok || err != nil {
		return 0, nil, show.Unlike(reply)
	}
	page, err = show.RecordsOf(pair[1])
	return next, page, err
}

// aboutLock runs the commands about one lock: lock-info and lock-waiters.
func aboutLock(name string, args []string, stdout io.Writer) error {
	var c locksCommand
	rest, err := c.parse(name, args, stdout)
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return usageError{fmt.Errorf("%s: want one NAME, such as: lockstep %s nightly-report", name, name)}
	}
	n, err := c.open()
	if err != nil {
		return err
	}
	defer n.close()
	command, print := "LOCK.INFO", printLock
	if name == "lock-waiters" {
		command, print = "LOCK.WAITERS", printWaiters
	}
	reply, err := n.ask(command, rest[0])
	if err != nil {
		return err
	}
	return c.otherwise(print(stdout, c.outputOptions, rest[0], reply))
}

// printLock prints a reply to LOCK.INFO.
func printLock(w io.Writer, out outputOptions, key string, reply any) error {
	if reply == nil {
		if out.json {
			if err := printJSON(w, nil); err != nil {
				return err
			}
		}
		return lock.ExitError{Code: exitNoLock, Err: fmt.Errorf("there is no lock %.100q in this database", key)}
	}
	r, err := show.RecordOf(reply)
	if err != nil {
		return err
	}
	if out.json {
		return printJSON(w, r)
	}
	var lines show.Record
	var owners []show.Record
	for _, f := range r {
		if f.Name != "owners" {
			lines = append(lines, f)
		} else if owners, err = show.Records(f.Value); err != nil {
			return err
		}
	}
	if err := show.List(w, lines); err != nil || len(owners) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return holders{show.NewTable(w, widestName)}.Add(owners)
}

// printWaiters prints a reply to LOCK.WAITERS.
func printWaiters(w io.Writer, out outputOptions, key string, reply any) error {
	waiters, err := show.RecordsOf(reply)
	switch {
	case err != nil:
		return err
	case out.json:
		return printJSON(w, waiters)
	case len(waiters) == 0:
		_, err := fmt.Fprintf(w, "no client waits for %.100q\n", key)
		return err
	}
	return show.NewTable(w, widestName).Add(waiters)
}

// forceOptions are the flags of `lockstep force`, besides those of all commands.
type forceOptions struct {
	reason, owner, token string
	ofOwner              bool
}

func (o *forceOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.reason, "reason", "", "`text` that says why: subscribers of the lock's events get it")
	fs.Func("owner", "`name` of the one owner that is to lose the lock (default: all)", func(owner string) error {
		o.owner, o.ofOwner = owner, true
		return nil
	})
	fs.Func("token", "`number`: end the lock only if this is its fencing token still", func(token string) error {
		if _, err := strconv.ParseUint(token, 10, 63); err != nil {
			return errors.New("want a whole number from 0 on")
		}
		o.token = token
		return nil
	})
}

// forceLock runs `lockstep force`.
func forceLock(args []string, stdout io.Writer) error {
	var c locksCommand
	var o forceOptions
	rest, err := c.parse("force", args, stdout, o.define)
	if err != nil {
		return err
	}
	if len(rest) != 1 || o.reason == "" {
		return usageError{errors.New(`force: want one NAME and a reason, such as: lockstep force nightly-report --reason "host-7 is gone"`)}
	}
	command := []string{"LOCK.FORCE", rest[0], "REASON", o.reason}
	if o.ofOwner {
		command = append(command, "OWNER", o.owner)
	}
	if o.token != "" {
		command = append(command, "TOKEN", o.token)
	}
	n, err := c.open()
	if err != nil {
		return err
	}
	defer n.close()
	reply, err := n.ask(command...)
	if err != nil {
		return err
	}
	ended, is := reply.(int64)
	if !is {
		return c.otherwise(show.Unlike(reply))
	}
	return c.print(stdout, show.Record{{Name: "ended", Value: ended}}, "owners that have lost the lock: %d", ended)
}
