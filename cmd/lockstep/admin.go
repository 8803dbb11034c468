package main

import (
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"lockstep/cluster"
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
		_, err = fmt.Fprintf(stdout, "%s is no member: there is nothing to remove\n", rest[0])
		return err
	}
	if err != nil {
		return err
	}
	if err := printReply(stdout, name, reply); err != nil {
		return fmt.Errorf("the node at %s answered otherwise than lockstep does: %w", o.addr, err)
	}
	return nil
}

// printReply prints the reply to the command name: lines for status, a table for members, and otherwise text.
func printReply(w io.Writer, name string, reply any) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	switch name {
	case "status":
		pairs, ok := reply.([]any)
		if !ok || len(pairs) < 2 {
			return fmt.Errorf("%.100q", fmt.Sprint(reply))
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			name, value := cell(pairs[i]), cell(pairs[i+1])
			if name == "state-hash" {
				value += " (of the state at log index state-index, not at applied)"
			}
			fmt.Fprintf(tw, "%s\t%s\n", name, value)
		}
	case "members":
		members, ok := reply.([]any)
		if !ok || len(members) == 0 {
			return fmt.Errorf("%.100q", fmt.Sprint(reply))
		}
		for i, m := range members {
			pairs, ok := m.([]any)
			if !ok || len(pairs) < 2 {
				return fmt.Errorf("%.100q", fmt.Sprint(m))
			}
			var names, values []string
			for j := 0; j+1 < len(pairs); j += 2 {
				names = append(names, strings.ToUpper(cell(pairs[j])))
				values = append(values, cell(pairs[j+1]))
			}
			if i == 0 {
				fmt.Fprintln(tw, strings.Join(names, "\t"))
			}
			fmt.Fprintln(tw, strings.Join(values, "\t"))
		}
	default:
		fmt.Fprintln(tw, visible(fmt.Sprint(reply)))
	}
	return tw.Flush()
}

// visible replaces everything that could control a terminal, except line breaks: a stranger may answer in place of a node.
func visible(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == '\n' || strconv.IsPrint(r) && r != utf8.RuneError {
			b.WriteString(text[:size])
		} else {
			quoted := strconv.Quote(text[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// cell returns a value as one cell of a table.
func cell(value any) string { return strings.ReplaceAll(visible(fmt.Sprint(value)), "\n", `\n`) }
