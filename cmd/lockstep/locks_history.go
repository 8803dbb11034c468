package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
)

// The commands that show what has happened to locks.

// historyOptions are the flags of `lockstep history`, besides those of all commands.
type historyOptions struct {
	event string
	count int
	from  string
	ago   time.Duration
	since time.Time
}

// mostEvents is how many events one reply has at most: each takes 2 KB of memory here.
const mostEvents = 10_000

func (o *historyOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.event, "event", "", "`event`: granted, released, expired, forced … (docs/locks.md lists them; default: all)")
	fs.IntVar(&o.count, "count", 100, "`number` of events to show at most: the last ones, or with --since or --from the first ones")
	fs.Func("from", "`number`: begin with the events of this seq (default: see --count)", func(seq string) error {
		if _, err := strconv.ParseUint(seq, 10, 63); err != nil {
			return errors.New("want a whole number from 0 on")
		}
		o.from = seq
		return nil
	})
	fs.Func("since", "`time`: begin so long ago by the node's clock, such as 10m, or at a time such as 2026-12-01T03:00:00Z (default: see --count)", func(text string) (err error) {
		o.ago, o.since = 0, time.Time{}
		if o.since, err = time.Parse(time.RFC3339, text); err == nil && o.since.UnixMilli() >= 0 {
			return nil
		}
		o.since = time.Time{}
		if o.ago, err = time.ParseDuration(text); err != nil || o.ago <= 0 {
			return errors.New("want a duration with its unit, such as 10m, or a time, such as 2026-12-01T03:00:00Z")
		}
		return nil
	})
}

// command returns the command that asks for the events of a lock, or of all locks.
func (o *historyOptions) command(n *askedNode, key string) ([]string, error) {
	command := []string{"LOCK.HISTORY", key, "COUNT", strconv.Itoa(o.count)}
	if o.event != "" {
		command = append(command, "EVENT", o.event)
	}
	if o.from != "" {
		command = append(command, "FROM", o.from)
	}
	switch {
	case !o.since.IsZero():
		command = append(command, "SINCE", strconv.FormatInt(o.since.UnixMilli(), 10))
	case o.ago > 0:
		now, err := nodeTime(n)
		if err != nil {
			return nil, err
		}
		command = append(command, "SINCE", strconv.FormatInt(max(now-o.ago.Milliseconds(), 0), 10))
	}
	return command, nil
}

// nodeTime returns the Unix time in ms by the node's clock: that of this machine may differ.
func nodeTime(n *askedNode) (ms int64, err error) {
	reply, err := n.ask("TIME")
	if err != nil {
		return 0, err
	}
	pair, ok := reply.([]any)
	if !ok || len(pair) != 2 {
		return 0, show.Unlike(reply)
	}
	text, _ := pair[0].(string)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 || seconds > math.MaxInt64/1000 {
		return 0, show.Unlike(reply)
	}
	return seconds * 1000, nil
}

// showHistory runs `lockstep history`.
func showHistory(args []string, stdout io.Writer) error {
	var c locksCommand
	var o historyOptions
	rest, err := c.parse("history", args, stdout, o.define)
	switch {
	case err != nil:
		return err
	case len(rest) > 1:
		return usageError{fmt.Errorf("history: unexpected argument %q: want one NAME, or none for all locks", rest[1])}
	case o.count < 1 || o.count > mostEvents:
		return usageError{fmt.Errorf("--count %d: want a number from 1 to %d; --from goes on behind the last seq", o.count, mostEvents)}
	}
	key := "*"
	if len(rest) == 1 {
		key = rest[0]
	}
	n, err := c.open()
	if err != nil {
		return err
	}
	defer n.close()
	command, err := o.command(n, key)
	if err != nil {
		return c.otherwise(err)
	}
	reply, err := n.ask(command...)
	if err != nil {
		return err
	}
	events, err := show.RecordsOf(reply)
	switch {
	case err != nil:
		return c.otherwise(err)
	case c.json:
		return printJSON(stdout, events)
	case len(events) == 0:
		_, err := fmt.Fprintln(stdout, "no events")
		return err
	}
	return c.otherwise(holders{show.NewTable(stdout, widestName)}.Add(events))
}

// statsOptions are the flags of `lockstep lock-stats`, besides those of all commands.
type statsOptions struct{ top int }

func (o *statsOptions) define(fs *flag.FlagSet) {
	fs.IntVar(&o.top, "top", 10, "`number` of locks with the most grants to show")
}

// lockStats runs `lockstep lock-stats`.
func lockStats(args []string, stdout io.Writer) error {
	var c locksCommand
	var o statsOptions
	rest, err := c.parse("lock-stats", args, stdout, o.define)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return usageError{fmt.Errorf("lock-stats: unexpected argument %q", rest[0])}
	case o.top < 0:
		return usageError{fmt.Errorf("--top %d: want a number from 0 on", o.top)}
	}
	n, err := c.open()
	if err != nil {
		return err
	}
	defer n.close()
	reply, err := n.ask("LOCK.STATS", "TOP", strconv.Itoa(o.top))
	if err != nil {
		return err
	}
	return c.otherwise(printStats(stdout, c.outputOptions, reply))
}

// printStats prints a reply to LOCK.STATS: a table for each list.
func printStats(w io.Writer, out outputOptions, reply any) error {
	r, err := show.RecordOf(reply)
	if err != nil {
		return err
	}
	for i, f := range r {
		if f.Name == "kinds" {
			if r[i].Value, err = byKind(f.Value); err != nil {
				return err
			}
		}
	}
	if out.json {
		return printJSON(w, r)
	}
	for i, f := range r {
		rows, err := show.Records(f.Value)
		if err != nil {
			return err
		}
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if len(rows) == 0 {
			_, err = fmt.Fprintf(w, "%s: none\n", f.Name)
		} else {
			err = show.NewTable(w, widestName).Add(rows)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byKind makes a list of a map of kinds: a kind is a value, and no name that programs count on.
func byKind(kinds any) (list []any, err error) {
	if empty, is := kinds.([]any); is && len(empty) == 0 {
		return empty, nil
	}
	r, is := kinds.(show.Record)
	if !is {
		return nil, show.Unlike(kinds)
	}
	for _, f := range r {
		counts, is := f.Value.(show.Record)
		if !is {
			return nil, show.Unlike(f.Value)
		}
		list = append(list, append(show.Record{{Name: "kind", Value: f.Name}}, counts...))
	}
	return list, nil
}
