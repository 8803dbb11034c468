package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"lockstep/cluster"
	"lockstep/cmd/lockstep/internal/show"
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
		return show.NewTable(w, 0).Add(members)
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
