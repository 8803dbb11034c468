// Command lockstep-bench measures lockstep beside Redis, Redlock, etcd and ZooKeeper: `lockstep bench` starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/lockstep-io/lockstep/bench/driver"
	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/peers"
)

const (
	exitRuntime = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run measures as the arguments say and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o driver.Options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	o.Define(fs)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		help(fs, stdout)
		return 0
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case err == nil:
		err = o.Check()
	}
	if err != nil {
		fmt.Fprintf(stderr, "lockstep bench: %v\nSee `lockstep bench --help`.\n", err)
		return exitUsage
	}
	o.Command = strings.Join(append([]string{"lockstep", "bench"}, args...), " ")
	if err := o.Run(ctx, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "lockstep bench: %v\n", err)
		return exitRuntime
	}
	return 0
}

func help(fs *flag.FlagSet, w io.Writer) {
	fmt.Fprint(w, "lockstep bench starts lockstep, Redis, etcd and ZooKeeper on this machine and\nmeasures them in turn with the same clients.\n\n"+
		"On Linux the servers end with it even if it is killed, which then leaves their\ndata; elsewhere end it with an interrupt.\n\nPeers:\n")
	for _, k := range peers.Kinds {
		fmt.Fprintf(w, "  %-20s %s\n", k.Name, k.About)
	}
	fmt.Fprint(w, "  lockstep-X-without-Y  lockstep-X, --without Y (`lockstep help`)\n\nWorkloads:\n")
	for _, wl := range load.Workloads {
		fmt.Fprintf(w, "  %-20s %s\n", wl.Name, wl.About)
	}
	fmt.Fprint(w, "\nFlags:\n")
	fs.VisitAll(func(f *flag.Flag) {
		arg, usage := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  --%s\n        %s\n", strings.TrimSpace(f.Name+" "+arg), usage)
	})
}
