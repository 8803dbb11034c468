package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// inspectOptions are the flags of `lockstep inspect`.
type inspectOptions struct {
	data        string
	keys, check bool
}

func (o *inspectOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.data, "data", "", "`directory` of a node that does not run")
	fs.BoolVar(&o.keys, "keys", false, "print the keys instead, one JSON value a line, with owners, tokens and the time that is left")
	fs.BoolVar(&o.check, "check", false, "check everything, also what a start would not read; exit code 1 if something is damaged")
}

// inspect shows what a data directory, a backup or a snapshot holds, and changes nothing.
func inspect(args []string, stdout io.Writer) error {
	var o inspectOptions
	var out outputOptions
	fs := flag.NewFlagSet("inspect", flag.ContinueOnError)
	var s3 s3Options
	o.define(fs)
	out.define(fs)
	s3.define(fs)
	rest, err := parseMixed(fs, args, stdout)
	if err != nil {
		return err
	}
	if len(rest) == 1 && o.data == os.Getenv(envName("data")) {
		o.data = "" // it is there for the node
	}
	if len(rest) > 1 || (len(rest) == 1) == (o.data != "") {
		return usageError{errors.New("inspect: want a directory or a FILE, such as: lockstep inspect --data /var/lib/lockstep")}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var state *raftfsm.FSM
	var shown show.Record
	var damage []string
	if o.data != "" {
		s, err := cluster.Inspect(ctx, o.data, o.check)
		if err != nil {
			return err
		}
		state, damage, shown = s.State, s.Damage, surveyRecord(s)
	} else if state, shown, err = inspectFile(ctx, &s3, rest[0]); err != nil {
		return err
	}
	if o.keys {
		err = printKeys(stdout, state)
	} else {
		err = printRecord(stdout, &out, shown)
	}
	if err == nil && o.check && len(damage) > 0 {
		err = fmt.Errorf("damaged: %s", damage[0])
		if len(damage) > 1 {
			err = fmt.Errorf("%w (and %d more)", err, len(damage)-1)
		}
	}
	return err
}

// inspectFile reads a backup or a snapshot.
func inspectFile(ctx context.Context, s3 *s3Options, path string) (*raftfsm.FSM, show.Record, error) {
	f, err := s3.open(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	state, facts, err := raftfsm.ReadFile(f)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	shown := show.Record{{Name: "file", Value: path}, {Name: "kind", Value: "snapshot"}}
	if facts != nil {
		shown[1].Value = "backup"
		shown = append(shown, show.Record{{Name: "node", Value: facts.Node}, {Name: "taken", Value: backupTime(*facts)}, {Name: "index", Value: int64(facts.Index)},
			{Name: "complete", Value: !facts.Partial}, {Name: "committed", Value: int64(facts.Committed)}}...)
	}
	return state, append(shown, contentsRecord(state.Contents())...), nil
}

// surveyRecord is what inspect and recover show of a directory.
func surveyRecord(s *cluster.Survey) show.Record {
	var members, snapshots, damage []any
	for _, m := range s.Members {
		members = append(members, show.Record{{Name: "id", Value: m.ID}, {Name: "peer", Value: m.PeerAddr}, {Name: "voter", Value: m.Voter}})
	}
	for _, m := range s.Snapshots {
		snapshots = append(snapshots, show.Record{{Name: "id", Value: m.ID}, {Name: "index", Value: int64(m.Index)}, {Name: "term", Value: int64(m.Term)}, {Name: "bytes", Value: m.Bytes}})
	}
	for _, d := range s.Damage {
		damage = append(damage, d)
	}
	return append(show.Record{{Name: "node", Value: s.ID}, {Name: "cluster", Value: s.Cluster}, {Name: "directory", Value: s.Directory}, {Name: "log-store", Value: s.LogStore},
		{Name: "joining", Value: s.Joining}, {Name: "term", Value: int64(s.Term)}, {Name: "first-index", Value: int64(s.First)}, {Name: "last-index", Value: int64(s.Last)},
		{Name: "last-term", Value: int64(s.LastTerm)}, {Name: "index", Value: int64(s.Reached)}, {Name: "committed", Value: int64(s.Committed)},
		{Name: "members", Value: members}, {Name: "snapshots", Value: snapshots}, {Name: "damage", Value: damage}}, contentsRecord(s.Contents)...)
}

func contentsRecord(c raftfsm.Contents) show.Record {
	last := any(nil)
	if c.Wall != 0 {
		last = time.UnixMicro(c.Wall).UTC().Format(time.RFC3339)
	}
	return show.Record{{Name: "keys", Value: int64(c.Keys)}, {Name: "locks", Value: int64(c.Locks)}, {Name: "sequence", Value: int64(c.Sequence)},
		{Name: "last-write", Value: last}, {Name: "newest-token", Value: int64(c.Token)}, {Name: "users", Value: int64(c.Users)}}
}

// printRecord prints a record: one field a line, or as JSON.
func printRecord(w io.Writer, out *outputOptions, r show.Record) error {
	if out.json {
		return printJSON(w, r)
	}
	for _, f := range r {
		if _, err := fmt.Fprintf(w, "%-13s %s\n", f.Name, show.Text(f)); err != nil {
			return err
		}
	}
	return nil
}

// printKeys prints each key of a state as a line of JSON.
func printKeys(stdout io.Writer, state *raftfsm.FSM) (err error) {
	w := bufio.NewWriter(stdout)
	state.EachKey(func(k store.KeyFacts) bool {
		err = printJSON(w, keyRecord(k))
		return err == nil
	})
	return errors.Join(err, w.Flush())
}

func keyRecord(k store.KeyFacts) show.Record {
	r := show.Record{{Name: "db", Value: int64(k.DB)}, {Name: "key", Value: k.Key}, {Name: "type", Value: k.Type.String()}, {Name: "token", Value: int64(k.Token)}, {Name: "ttl", Value: k.TTL}}
	if k.Type == store.TypeString {
		r = append(r, show.Field{Name: "value", Value: k.Value})
	}
	if k.Kind == "" {
		return r
	}
	owners := []any{}
	for _, o := range k.Owners {
		owners = append(owners, show.Record{{Name: "owner", Value: o.Name}, {Name: "holds", Value: o.Holds}, {Name: "token", Value: int64(o.Token)}, {Name: "ttl", Value: o.TTL}})
	}
	return append(r, show.Record{{Name: "kind", Value: k.Kind}, {Name: "holders", Value: int64(k.Held)}, {Name: "owners", Value: owners}}...)
}
