package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"lockstep/bench/driver"
	"lockstep/bench/load"
	"lockstep/bench/peers"
)

// benchmark measures this program and other servers.
func benchmark(args []string, stdout, stderr io.Writer) error {
	var o driver.Options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	o.Define(fs)
	if err := parseFlags(fs, args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, benchText())
		}
		return err
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("bench: unexpected argument %q", fs.Arg(0))}
	}
	if err := o.Check(); err != nil {
		return usageError{fmt.Errorf("bench: %w", err)}
	}
	o.Command = strings.Join(append([]string{"lockstep", "bench"}, args...), " ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return o.Run(ctx, stdout, stderr)
}

// benchText returns the text of `lockstep bench --help`. `lockstep help` does not have it, because that
// is for operators of nodes.
func benchText() string {
	var b bytes.Buffer
	b.WriteString("lockstep bench starts lockstep, Redis, etcd and ZooKeeper on this machine and\nmeasures them in turn with the same clients.\n\n" +
		"On Linux the servers end with it even if it is killed, which then leaves their\ndata; elsewhere end it with an interrupt.\n\nPeers:\n")
	for _, k := range peers.Kinds {
		fmt.Fprintf(&b, "  %-20s %s\n", k.Name, k.About)
	}
	b.WriteString("\nWorkloads:\n")
	for _, w := range load.Workloads {
		fmt.Fprintf(&b, "  %-20s %s\n", w.Name, w.About)
	}
	b.WriteString("\nFlags:\n")
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	new(driver.Options).Define(fs)
	writeFlags(&b, fs)
	return b.String()
}
