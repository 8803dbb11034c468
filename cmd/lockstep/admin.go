package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"lockstep/bench"
)

// adminOptions are the flags of the commands that talk to a running node.
type adminOptions struct {
	addr, password string
	timeout        time.Duration
}

func (o *adminOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.addr, "addr", "127.0.0.1:6379", "`host:port` of any node")
	fs.StringVar(&o.password, "requirepass", "", "`password` of the node")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for the node")
}

// adminArgs is what the commands take behind their flags; nothing if they are
// not here.
var adminArgs = map[string]struct {
	least, most int
	usage       string
}{
	"add":      {2, 2, "add ID PEER-ADDRESS, such as: lockstep add n4 10.0.0.4:7379"},
	"remove":   {1, 1, "remove ID, such as: lockstep remove n3"},
	"transfer": {0, 1, "transfer [ID]"},
}

// administer runs an administration command: it is one LOCKSTEP command of the
// Redis protocol.
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
	if err != nil {
		return err
	}
	return printReply(stdout, name, reply)
}

// askNode sends one command to a node.
func askNode(o adminOptions, command []string) (any, error) {
	c, err := dialNode(o)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	timer := time.AfterFunc(o.timeout, func() { c.Close() })
	defer timer.Stop()
	reply, err := c.Do(command...)
	return reply, answerError(o, err)
}

// dialNode connects to a node and gives the password.
func dialNode(o adminOptions) (*bench.Conn, error) {
	c, err := bench.Dial(o.addr, o.timeout)
	if err != nil {
		return nil, fmt.Errorf("no node at %s: %w; start one, or name another with --addr", o.addr, err)
	}
	if o.password == "" {
		return c, nil
	}
	timer := time.AfterFunc(o.timeout, func() { c.Close() })
	defer timer.Stop()
	if _, err := c.Do("AUTH", o.password); err != nil {
		c.Close()
		return nil, answerError(o, err)
	}
	return c, nil
}

// answerError tells an error reply from none.
func answerError(o adminOptions, err error) error {
	var refused bench.ServerError
	if err != nil && !errors.As(err, &refused) {
		return fmt.Errorf("the node at %s did not answer: %w", o.addr, err)
	}
	if err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
		return fmt.Errorf("give the node's password with --requirepass: %w", err)
	}
	return err
}

// printReply shows flat name-value pairs one a line, members as a table.
func printReply(w io.Writer, name string, reply any) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	switch name {
	case "status":
		pairs, _ := reply.([]any)
		for i := 0; i+1 < len(pairs); i += 2 {
			fmt.Fprintf(tw, "%v\t%v\n", pairs[i], pairs[i+1])
		}
	case "members":
		members, _ := reply.([]any)
		for i, m := range members {
			pairs, _ := m.([]any)
			var names, values []string
			for j := 0; j+1 < len(pairs); j += 2 {
				names = append(names, strings.ToUpper(fmt.Sprint(pairs[j])))
				values = append(values, fmt.Sprint(pairs[j+1]))
			}
			if i == 0 {
				fmt.Fprintln(tw, strings.Join(names, "\t"))
			}
			fmt.Fprintln(tw, strings.Join(values, "\t"))
		}
	default:
		fmt.Fprintln(tw, reply)
	}
	return tw.Flush()
}
