package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
)

// adminArgs says how many arguments each administration command has. A command that is not in adminArgs has none.
var adminArgs = map[string]struct {
	least, most int
	usage       string
}{
	"add":      {2, 2, "add ID PEER-ADDRESS, such as: lockstep add n4 10.0.0.4:7379"},
	"remove":   {1, 1, "remove ID, such as: lockstep remove n3"},
	"transfer": {0, 1, "transfer [ID]"},
}

// administer sends an administration command to a node as one LOCKSTEP command of the Redis protocol, and prints the reply.
func administer(name string, args []string, stdout io.Writer) error {
	var o adminOptions
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	o.define(fs)
	var out outputOptions
	out.define(fs)
	var watch watchOptions
	if name == "status" || name == "members" {
		watch.define(fs)
	}
	rest, err := parseMixed(fs, args, stdout)
	if err != nil {
		return err
	}
	takes := adminArgs[name]
	if len(rest) < takes.least {
		return usageError{fmt.Errorf("%s: want %s", name, takes.usage)}
	}
	if len(rest) > takes.most {
		return usageError{fmt.Errorf("%s: unexpected argument %q", name, rest[len(rest)-1])}
	}
	if watch.every != 0 {
		return watch.run(stdout, func() error {
			reply, err := askNode(o, []string{"LOCKSTEP", name})
			if err != nil {
				return err
			}
			return o.otherwise(printReply(stdout, out, name, reply))
		})
	}
	reply, err := askNode(o, append([]string{"LOCKSTEP", name}, rest...))
	if name == "remove" && err != nil && strings.HasPrefix(err.Error(), "ERR "+cluster.ErrNoMember.Error()) {
		// An earlier remove may have taken effect although its reply was lost, so this is no failure.
		if out.json {
			return printJSON(stdout, show.Record{{Name: "result", Value: "no member"}})
		}
		_, err = fmt.Fprintf(stdout, "%s is no member: there is nothing to remove\n", rest[0])
		return err
	}
	if err != nil {
		return err
	}
	return o.otherwise(printReply(stdout, out, name, reply))
}

// watchOptions are the flags of status and members.
type watchOptions struct{ every time.Duration }

func (o *watchOptions) define(fs *flag.FlagSet) {
	fs.DurationVar(&o.every, "watch", 0, "show it again and again, with a pause of so `long`, until it is interrupted")
}

// leastWatch is the shortest pause of --watch.
const leastWatch = 100 * time.Millisecond

// run calls show again and again. An error does not end it: the node may come back.
func (o *watchOptions) run(w io.Writer, show func() error) error {
	if o.every < leastWatch {
		return usageError{fmt.Errorf("--watch: want %v or more", leastWatch)}
	}
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	for {
		if err := show(); err != nil {
			if _, err := fmt.Fprintf(w, "lockstep: %v\n", err); err != nil {
				return err // nobody reads any more
			}
		}
		select {
		case <-stop.Done():
			return nil
		case <-time.After(o.every):
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
}

// mayLose says how many more members the cluster may lose.
func mayLose(members []show.Record) string {
	voters, up := 0, 0
	for _, m := range members {
		var voter, alive bool
		for _, f := range m {
			switch f.Name {
			case "voter":
				voter = f.Value == true
			case "up":
				alive = f.Value == true
			}
		}
		if voter {
			voters++
			if alive {
				up++
			}
		}
	}
	quorum := voters/2 + 1
	switch spare := up - quorum; {
	case voters == 0:
		return "no voters are known"
	case spare < 0:
		return fmt.Sprintf("%d of %d voters are up: too few for a majority, so no command is executed", up, voters)
	case spare == 0:
		return fmt.Sprintf("%d of %d voters are up: the cluster may lose none", up, voters)
	default:
		return fmt.Sprintf("%d of %d voters are up: the cluster may lose %d more", up, voters, spare)
	}
}

// printReply prints the reply to the command name: lines for status, a table for members, and otherwise text.
func printReply(w io.Writer, out outputOptions, name string, reply any) error {
	switch name {
	case "status":
		r, err := show.RecordOf(reply)
		if err != nil {
			return err
		}
		if out.json {
			return printJSON(w, r)
		}
		for i, f := range r {
			if f.Name == "state-hash" {
				r[i].Value = show.Cell(f.Value) + " (of the state at log index state-index, not at applied)"
			}
		}
		return show.List(w, r)
	case "members":
		members, err := show.RecordsOf(reply)
		if err == nil && len(members) == 0 {
			err = show.Unlike(reply)
		}
		if err != nil {
			return err
		}
		if out.json {
			return printJSON(w, members)
		}
		if err := show.NewTable(w, 0).Add(members); err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, mayLose(members))
		return err
	}
	text, is := reply.(string)
	switch {
	case !is:
		return show.Unlike(reply)
	case out.json:
		return printJSON(w, show.Record{{Name: "result", Value: text}})
	}
	_, err := fmt.Fprintln(w, show.Visible(text))
	return err
}
