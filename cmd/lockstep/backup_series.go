package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/bucket"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// A series is a directory, or a prefix of objects, with backups whose names have the time. Its name ends in a slash. Old ones are deleted, but
// never the newest complete one, and none if the present backup is not complete and read back.

// seriesOptions are the flags for a series.
type seriesOptions struct {
	every, keepFor time.Duration
	keep           int
}

func (o *seriesOptions) define(fs *flag.FlagSet) {
	fs.DurationVar(&o.every, "every", 0, "go on, and take a backup each time this has passed, to DIRECTORY/ or s3://BUCKET/PREFIX/ (default: take one)")
	fs.IntVar(&o.keep, "keep", 0, "`number` of complete backups there that stay: older ones are deleted after each success (default: all)")
	fs.DurationVar(&o.keepFor, "keep-for", 0, "how long backups stay there; the newest complete one stays longer (default: for ever)")
}

// isSeries reports whether a name is that of a series.
func isSeries(name string) bool { return strings.HasSuffix(name, "/") }

// check fails if the flags do not fit the name.
func (o *seriesOptions) check(name string) error {
	switch {
	case o.every < 0 || o.every > 0 && o.every < time.Second:
		return fmt.Errorf("--every %v: want a second or more", o.every)
	case o.keep < 0:
		return fmt.Errorf("--keep %d: want a number from 1 on", o.keep)
	case o.keepFor < 0:
		return fmt.Errorf("--keep-for %v: want a duration, such as 720h", o.keepFor)
	case !isSeries(name) && (o.every > 0 || o.keep > 0 || o.keepFor > 0):
		return errors.New("--every, --keep and --keep-for need a directory or a prefix, whose name ends in a slash")
	}
	return nil
}

const (
	seriesTime       = "20060102T150405Z"
	seriesBegin      = "lockstep-"
	seriesEnd        = ".backup"
	seriesIncomplete = "-incomplete.backup"
	// retryPause is how long a series waits after a failure, if its own interval is not shorter.
	retryPause = time.Minute
)

var seriesName = regexp.MustCompile(`^lockstep-(\d{8}T\d{6}Z)(-incomplete)?\.backup$`)

func nameInSeries(at time.Time, partial bool) string {
	end := seriesEnd
	if partial {
		end = seriesIncomplete
	}
	return seriesBegin + at.UTC().Format(seriesTime) + end
}

// series is a series and the node whose backups it has.
type series struct {
	prefix string // ends in a slash
	node   adminOptions
	s3     *s3Options
	opts   seriesOptions
	now    func() time.Time
}

// once takes one backup, and deletes old ones. removed are their names.
func (s *series) once(ctx context.Context) (name string, facts raftfsm.BackupFacts, removed []string, err error) {
	at := s.now()
	if bucket.IsURL(s.prefix) {
		name, facts, err = takeToBucket(ctx, s.node, s.s3, func(partial bool) string { return s.prefix + nameInSeries(at, partial) })
	} else {
		name, facts, err = s.toDirectory(at)
	}
	if err != nil || facts.Partial || s.opts.keep == 0 && s.opts.keepFor == 0 {
		return name, facts, nil, err
	}
	names, err := s.list(ctx)
	if err != nil {
		return name, facts, nil, fmt.Errorf("%s is whole, but old backups were not deleted: %w", name, err)
	}
	for _, old := range s.opts.outdated(names, strings.TrimPrefix(name, s.prefix), at) {
		if err := s.remove(ctx, old); err != nil {
			return name, facts, removed, fmt.Errorf("%s is whole, but an old backup was not deleted: %w", name, err)
		}
		removed = append(removed, old)
	}
	return name, facts, removed, nil
}

// toDirectory takes a backup to a file. Until it is known to be complete, its name says that it is not.
func (s *series) toDirectory(at time.Time) (path string, facts raftfsm.BackupFacts, err error) {
	path = s.prefix + nameInSeries(at, true)
	facts, complete, err := takeBackup(s.node, path)
	facts.Partial = facts.Partial || !complete
	if err != nil || facts.Partial {
		return path, facts, err
	}
	whole := s.prefix + nameInSeries(at, false)
	if err := keepBackup(path, whole); err != nil {
		return path, facts, err
	}
	return whole, facts, syncDir(s.prefix)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// list returns the names of the backups of the series. Other files and objects are not its own.
func (s *series) list(ctx context.Context) (names []string, err error) {
	if !bucket.IsURL(s.prefix) {
		entries, err := os.ReadDir(s.prefix)
		for _, e := range entries {
			if e.Type().IsRegular() && seriesName.MatchString(e.Name()) {
				names = append(names, e.Name())
			}
		}
		return names, err
	}
	b, prefix, err := s.s3.bucket(s.prefix + seriesBegin)
	if err != nil {
		return nil, err
	}
	keys, err := b.List(ctx, prefix)
	for _, key := range keys {
		if name, ours := strings.CutPrefix(key, strings.TrimSuffix(prefix, seriesBegin)); ours && seriesName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, err
}

func (s *series) remove(ctx context.Context, name string) error {
	if !bucket.IsURL(s.prefix) {
		return os.Remove(filepath.Join(s.prefix, name))
	}
	b, key, err := s.s3.bucket(s.prefix + name)
	if err != nil {
		return err
	}
	return b.Remove(ctx, key)
}

// outdated returns which backups of a series are to be deleted after the complete backup just, which was made at now. It never returns just, or
// the newest complete one.
func (o *seriesOptions) outdated(names []string, just string, now time.Time) (old []string) {
	names = slices.Clone(names)
	slices.Sort(names)
	slices.Reverse(names) // the names have the time, so the newest is first
	complete := 0
	for _, name := range names {
		m := seriesName.FindStringSubmatch(name)
		if m == nil || name == just {
			if name == just {
				complete++
			}
			continue
		}
		at, err := time.Parse(seriesTime, m[1])
		if err != nil {
			continue
		}
		late := o.keepFor > 0 && now.Sub(at) > o.keepFor || o.keep > 0 && complete >= o.keep
		switch {
		case m[2] == "" && complete == 0: // the newest complete one, though a clock may have been wrong
			complete++
		case late:
			old = append(old, name)
		case m[2] == "":
			complete++
		}
	}
	return old
}

// run takes backups until a signal comes; it reports each, and goes on after a failure.
func (s *series) run(ctx context.Context, out *outputOptions, stdout, stderr io.Writer) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		begun, pause := s.now(), s.opts.every
		err := s.report(ctx, out, stdout)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			fmt.Fprintf(stderr, "lockstep: %s\n", show.Visible(err.Error()))
			pause = min(pause, retryPause)
		}
		next.Reset(max(pause-s.now().Sub(begun), 0))
	}
}

// report takes one backup and prints what it has.
func (s *series) report(ctx context.Context, out *outputOptions, stdout io.Writer) error {
	name, facts, removed, err := s.once(ctx)
	if err != nil {
		return err
	}
	gone := []any{}
	for _, r := range removed {
		gone = append(gone, r)
	}
	text := backupText(name, facts)
	if len(removed) > 0 {
		text += fmt.Sprintf("; %d old backups were deleted", len(removed))
	}
	return errors.Join(out.print(stdout, append(backupRecord(name, facts), show.Field{Name: "removed", Value: gone}), "%s", text), lacks(name, facts))
}
