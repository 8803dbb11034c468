package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
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

// administer runs an administration command: it is one LOCKSTEP command of the
// Redis protocol.
func administer(name string, args []string, stdout io.Writer) error {
	var o adminOptions
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	o.define(fs)
	if err := parse(fs, args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, helpText())
		}
		return err
	}
	rest := fs.Args()
	if name != "transfer" && len(rest) > 0 || len(rest) > 1 {
		return usageError{fmt.Errorf("%s: unexpected argument %q", name, rest[len(rest)-1])}
	}
	c, err := dialNode(o)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	reply, err := c.do(append([]string{"LOCKSTEP", name}, rest...)...)
	if err != nil {
		return err
	}
	return printReply(stdout, name, reply)
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

// nodeConn is a connection to a node.
type nodeConn struct {
	conn net.Conn
	r    *bufio.Reader
}

func dialNode(o adminOptions) (*nodeConn, error) {
	conn, err := net.DialTimeout("tcp", o.addr, o.timeout)
	if err != nil {
		return nil, fmt.Errorf("no node at %s: %w; start one, or name another with --addr", o.addr, err)
	}
	// A deadline in wall time is all that net.Conn offers.
	timer := time.AfterFunc(o.timeout, func() { conn.Close() })
	c := &nodeConn{conn: conn, r: bufio.NewReader(conn)}
	if o.password == "" {
		return c, nil
	}
	if _, err := c.do("AUTH", o.password); err != nil {
		timer.Stop()
		conn.Close()
		return nil, err
	}
	return c, nil
}

// do sends a command and reads its RESP2 reply.
func (c *nodeConn) do(args ...string) (any, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return nil, err
	}
	return readReply(c.r)
}

func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the node did not answer: %w", err)
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("the node sent an empty line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return nil, fmt.Errorf("the node sent %q", line)
	}
	switch kind {
	case ':':
		return n, nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		return string(b[:n]), nil
	case '*':
		list := make([]any, max(n, 0))
		for i := range list {
			if list[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("the node sent %q", line)
}
