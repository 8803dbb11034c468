package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/audit"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/store"
)

// openAudit opens the directory for the events of locks, and writes those of the hub; it returns nil without --audit-dir.
func (o *options) openAudit(hub *server.Hub, log *slog.Logger) (*audit.Writer, error) {
	if o.auditDir == "" {
		return nil, nil
	}
	size, ok := store.ParseMemory(o.auditSize)
	if !ok || size < audit.LeastSize {
		return nil, usageError{fmt.Errorf("--audit-size %q: want 1mb or more, such as 1gb", o.auditSize)}
	}
	w, err := audit.Open(o.auditDir, size, log)
	if err != nil {
		return nil, fmt.Errorf("--audit-dir: %w", err)
	}
	go w.Run(hub.Locks())
	return w, nil
}

// auditOptions are the flags of audit, besides the common ones.
type auditOptions struct{ check bool }

func (o *auditOptions) define(fs *flag.FlagSet) {
	fs.BoolVar(&o.check, "check", false, "check the files of one or more nodes of a cluster")
}

// mostFaults is how many faults are printed.
const mostFaults = 100

// checkAudit runs `lockstep audit`.
func checkAudit(args []string, stdout io.Writer) error {
	var o auditOptions
	var out outputOptions
	fs := flag.NewFlagSet("audit", flag.ContinueOnError)
	o.define(fs)
	out.define(fs)
	paths, err := parseMixed(fs, args, stdout)
	switch {
	case err != nil:
		return err
	case !o.check || len(paths) == 0:
		return usageError{errors.New("audit: want --check and the directories of --audit-dir, such as: lockstep audit --check /var/lib/lockstep/audit")}
	}
	faults := []any{}
	sum, err := audit.Check(paths, func(text string) {
		if len(faults) < mostFaults {
			faults = append(faults, text)
		}
	})
	if err != nil {
		return err
	}
	result := show.Record{{Name: "events", Value: sum.Events}, {Name: "grants", Value: sum.Grants}, {Name: "locks", Value: int64(sum.Locks)}, {Name: "gaps", Value: int64(sum.Gaps)},
		{Name: "first", Value: stamp(sum.First)}, {Name: "last", Value: stamp(sum.Last)}, {Name: "faults", Value: sum.Faults}, {Name: "faults-shown", Value: faults}}
	if out.json {
		err = printJSON(stdout, result)
	} else {
		for _, text := range faults {
			fmt.Fprintln(stdout, show.Visible(fmt.Sprint(text)))
		}
		err = show.List(stdout, result[:len(result)-1])
	}
	switch {
	case err != nil:
		return err
	case sum.Faults > 0:
		return fmt.Errorf("the audit found %d faults", sum.Faults)
	}
	return nil
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Format(time.RFC3339Nano)
}
