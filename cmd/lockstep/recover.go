package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/mattn/go-isatty"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
	"github.com/lockstep-io/lockstep/store"
)

// recoverOptions are the flags of `lockstep recover`.
type recoverOptions struct {
	data, peerAdvertise string
	above               int64
	yes                 bool
}

func (o *recoverOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.data, "data", "", "`directory` of the survivor, which does not run")
	fs.StringVar(&o.peerAdvertise, "peer-advertise", "", "`host:port` under which the other nodes will reach it (default: that which its members know)")
	fs.Int64Var(&o.above, "tokens-above", 0, "`number`: the fencing tokens of the new cluster are larger, and larger than the time of day in microseconds and the newest token in the directory plus 2^32")
	fs.BoolVar(&o.yes, "yes", false, "do not ask")
}

// recoverData makes a cluster of one out of the data directory of a survivor.
func recoverData(args []string, stdin *os.File, stdout io.Writer) error {
	var o recoverOptions
	var out outputOptions
	fs := flag.NewFlagSet("recover", flag.ContinueOnError)
	o.define(fs)
	out.define(fs)
	rest, err := parseMixed(fs, args, stdout)
	if err != nil {
		return err
	}
	if len(rest) > 0 || o.data == "" {
		return usageError{errors.New("recover: want a directory, such as: lockstep recover --data /var/lib/lockstep")}
	}
	if o.above < 0 || o.above > store.MaxFirstToken {
		return usageError{fmt.Errorf("--tokens-above %d: want 0 to %d", o.above, int64(store.MaxFirstToken))}
	}
	if o.peerAdvertise != "" {
		if err := cluster.CheckAddress(o.peerAdvertise); err != nil {
			return usageError{fmt.Errorf("--peer-advertise: %w", err)}
		}
	}
	if !o.yes && (out.json || !isatty.IsTerminal(stdin.Fd())) {
		return usageError{errors.New("recover: it asks at a terminal; in a script say --yes, after a look by lockstep inspect --data " + o.data)}
	}
	cfg := cluster.Default()
	cfg.Data, cfg.PeerAdvertise = o.data, o.peerAdvertise
	cfg.Logger, cfg.Time = slog.New(slog.DiscardHandler), cluster.NewSystemTime()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	done, err := cluster.Recover(ctx, cfg, o.above, func(s *cluster.Survey) (bool, error) {
		stop() // what follows is short, and may end at any point
		if o.yes && out.json {
			return true, nil
		}
		if err := printRecord(stdout, &out, surveyRecord(s)); err != nil || o.yes {
			return err == nil, err
		}
		return askToRecover(stdin, stdout, s)
	})
	if err != nil {
		return err
	}
	return tellRecovered(stdout, &out, o.data, done)
}

// askToRecover tells what a recovery does, and reads the answer.
func askToRecover(stdin io.Reader, stdout io.Writer, s *cluster.Survey) (bool, error) {
	others := []string{}
	for _, m := range s.Members {
		if m.ID != s.ID {
			others = append(others, m.ID)
		}
	}
	fmt.Fprintf(stdout, "\nThis makes node %s the only member of a new cluster with this state. Locks that were acknowledged without this node are lost.\n"+
		"The other members (%s) must be stopped for good: if a majority of them came back, both clusters would grant the same locks.\nGo on? Type yes: ", show.Visible(s.ID), show.Visible(strings.Join(others, ", ")))
	line, err := bufio.NewReader(io.LimitReader(stdin, 64)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return strings.TrimSpace(line) == "yes", nil
}

// tellRecovered says what was done, how to start the node, and how to undo it.
func tellRecovered(stdout io.Writer, out *outputOptions, data string, done cluster.Recovered) error {
	r := show.Record{{Name: "data", Value: data}, {Name: "kept", Value: done.Kept}}
	if done.Survey == nil {
		return out.print(stdout, r, "The recovery that was interrupted here is complete. The old files are in %s.", done.Kept)
	}
	s := done.Survey
	r = append(r, show.Record{{Name: "node", Value: s.ID}, {Name: "peer-advertise", Value: done.Addr}, {Name: "keys", Value: int64(s.Contents.Keys)}, {Name: "locks", Value: int64(s.Contents.Locks)},
		{Name: "index", Value: int64(s.Reached)}, {Name: "committed", Value: int64(s.Committed)}, {Name: "tokens-above", Value: done.FirstFree}}...)
	return out.print(stdout, r, `%s is the data of node %s, alone in a new cluster, with %d keys and %d locks, up to log index %d.
Start it without --peers and --join, with its other flags:
  lockstep --id %s --data %s --peer-listen %s
Others join it with an empty directory and --join. The old files are in %s. To go back before
the node has run, remove the files and directories of these names from %s, and move the old ones there.`,
		data, show.Visible(s.ID), s.Contents.Keys, s.Contents.Locks, s.Reached, show.Visible(s.ID), data, show.Visible(done.Addr), done.Kept, data)
}
