package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/mattn/go-isatty"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/bucket"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/lock"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/server/respclient"
	"github.com/lockstep-io/lockstep/store"
)

// parseMixed is parse for commands that accept flags before, between and after their arguments.
func parseMixed(fs *flag.FlagSet, args []string, stdout io.Writer) (rest []string, err error) {
	if err := parseEnvironment(fs); err != nil {
		return nil, err
	}
	for {
		if err := parseFlags(fs, args); err != nil {
			return nil, helped(fs, stdout, err)
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
}

// backupOptions are the flags that only backup has.
type backupOptions struct {
	verify bool
	series seriesOptions
}

func (o *backupOptions) define(fs *flag.FlagSet) {
	fs.BoolVar(&o.verify, "verify", false, "read a backup and say what it holds")
	o.series.define(fs)
}

// backup writes a backup of a running node's state to a file, the standard output or S3-compatible storage, and verifies it. With --verify it
// only verifies an existing backup.
func backup(args []string, stdout, stderr io.Writer) error {
	var o adminOptions
	var out outputOptions
	var own backupOptions
	var s3 s3Options
	fs := flag.NewFlagSet("backup", flag.ContinueOnError)
	o.define(fs)
	out.define(fs)
	own.define(fs)
	s3.define(fs)
	rest, err := parseMixed(fs, args, stdout)
	if err != nil {
		return err
	}
	if len(rest) != 1 || rest[0] == "" {
		return usageError{errors.New("backup: want one FILE, such as: lockstep backup locks.backup")}
	}
	if err := own.series.check(rest[0]); err != nil {
		return usageError{fmt.Errorf("backup: %w", err)}
	}
	name, facts := rest[0], raftfsm.BackupFacts{}
	if own.verify {
		if facts, err = s3.read(context.Background(), name, func(in io.Reader) (raftfsm.BackupFacts, error) { return raftfsm.ReadBackup(in, io.Discard) }); err != nil {
			return err
		}
		return errors.Join(out.print(stdout, backupRecord(name, facts), "%s", backupText(name, facts)), lacks(name, facts))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends the process
	switch list := (&series{name, o, &s3, own.series, cluster.NewSystemTime().Wall}); {
	case own.series.every > 0:
		return list.run(ctx, &out, stdout, stderr)
	case isSeries(name):
		return list.report(ctx, &out, stdout)
	case name == standard:
		if f, is := stdout.(*os.File); is && isatty.IsTerminal(f.Fd()) {
			return usageError{errors.New("backup: the standard output is a terminal: send it to a program or a file")}
		}
		facts, err = takeTo(ctx, o, stdout)
		stdout = stderr // the standard output is the backup
	case bucket.IsURL(name):
		_, facts, err = takeToBucket(ctx, o, &s3, func(bool) string { return name })
	default:
		complete := false
		facts, complete, err = takeBackup(o, name)
		facts.Partial = facts.Partial || !complete // a node of an earlier version does not say it in the file
	}
	if err != nil {
		return err
	}
	return errors.Join(out.print(stdout, backupRecord(name, facts), "%s", backupText(name, facts)), lacks(name, facts))
}

// lacks returns an error with an exit code of its own that says what a backup may lack, or nil if it lacks nothing.
func lacks(path string, facts raftfsm.BackupFacts) error {
	if !facts.Partial {
		return nil
	}
	doubt := ""
	if facts.Committed < facts.Index {
		doubt = fmt.Sprintf(" Of the entries %d to %d of that log it is not known whether they were ever acknowledged.", facts.Committed+1, facts.Index)
	}
	return lock.ExitError{Code: exitIncomplete, Err: fmt.Errorf("%s may lack writes: %s found no leader when it made the backup, which has only what the log of that node had. It lacks every write after log index %d that other nodes acknowledged without that node.%s Take a backup when there is a leader; if a majority is lost for good, see docs/recovery.md",
		path, nodeName(facts), facts.Index, doubt)}
}

// readFile opens the file at path. Then it calls the function read, which reads the backup in the file.
func readFile(path string, read func(io.Reader) (raftfsm.BackupFacts, error)) (facts raftfsm.BackupFacts, err error) {
	f, err := os.Open(path)
	if err != nil {
		return facts, err
	}
	defer f.Close()
	if facts, err = read(f); err != nil {
		return facts, fmt.Errorf("%s: %w", path, err)
	}
	return facts, nil
}

func backupText(path string, facts raftfsm.BackupFacts) string {
	is := "is whole"
	if facts.Partial {
		is = "is undamaged, but has the log of one node only, and may lack locks"
	}
	return fmt.Sprintf("%s %s: %d keys, taken on %s at %s, log index %d, %d write sets", path, is, facts.Keys, nodeName(facts), backupTime(facts), facts.Index, facts.Sequence)
}

// nodeName returns the name of the node that made a backup.
func nodeName(facts raftfsm.BackupFacts) string {
	if quoted := strconv.Quote(facts.Node); quoted != `"`+facts.Node+`"` {
		return quoted // in a forged backup the name may have control characters for the terminal
	}
	return facts.Node
}

func backupTime(facts raftfsm.BackupFacts) string {
	return time.UnixMicro(facts.Wall).UTC().Format(time.RFC3339)
}

// backupRecord has the same facts as backupText.
func backupRecord(path string, facts raftfsm.BackupFacts) show.Record {
	return show.Record{{Name: "file", Value: path}, {Name: "keys", Value: int64(facts.Keys)}, {Name: "node", Value: facts.Node}, {Name: "taken", Value: backupTime(facts)},
		{Name: "index", Value: int64(facts.Index)}, {Name: "sequence", Value: int64(facts.Sequence)},
		{Name: "complete", Value: !facts.Partial}, {Name: "committed", Value: int64(facts.Committed)}}
}

// takeBackup writes a node's backup to a file at path. The name ends in .part until the backup is verified; otherwise no file is left.
// complete is that of receiveBackup.
func takeBackup(o adminOptions, path string) (facts raftfsm.BackupFacts, complete bool, err error) {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return facts, false, errors.Join(fmt.Errorf("%s exists: name another file, or remove it first", path), err)
	}
	c, err := dialNode(o)
	if err != nil {
		return facts, false, err
	}
	defer c.Close()
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A backup has all values in clear text. os.CreateTemp makes a new file that only this user may read, so nobody else can prepare
	// it.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return facts, false, err
	}
	part := f.Name()
	defer context.AfterFunc(stopped, func() {
		stop() // a second signal ends the process
		_ = c.Close()
		_ = os.Remove(part) // fails if the backup is complete, because then it no longer has this name
	})()
	facts, complete, err = receivePart(o, c, f, path)
	if err == nil {
		err = keepBackup(part, path)
	}
	if err != nil && stopped.Err() != nil {
		err = errors.New("a signal has ended the backup: nothing of it is left")
	}
	if err != nil {
		if gone := os.Remove(part); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return facts, false, err
	}
	return facts, complete, syncDir(filepath.Dir(path))
}

// receivePart receives a node's backup into f, the part of the backup to path, and checks it without building the state, which takes
// much memory.
func receivePart(o adminOptions, c *respclient.Conn, f *os.File, path string) (facts raftfsm.BackupFacts, complete bool, err error) {
	_ = lockPart(f) // some file systems have no locks; on these, removeLeftovers removes no part
	if err = removeLeftovers(path, f.Name()); err == nil {
		_, complete, err = receiveBackup(o, c, f)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		facts, err = readFile(f.Name(), raftfsm.CheckBackup)
	}
	return facts, complete, err
}

// lockPart locks the part of a backup as long as this process has it open.
func lockPart(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// removeLeftovers removes the parts of interrupted backups to path, which no process locks, but not the part own of the present
// backup.
func removeLeftovers(path, own string) error {
	parts, err := filepath.Glob(escapeGlob(path) + ".*.part")
	for _, part := range parts {
		if part == own {
			continue
		}
		f, openErr := os.OpenFile(part, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if openErr != nil {
			continue // the part is gone by now, or belongs to another user
		}
		if lockPart(f) == nil {
			err = errors.Join(err, os.Remove(part))
		}
		err = errors.Join(err, f.Close())
	}
	return err
}

// escapeGlob returns a pattern that matches only path itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// keepBackup gives a whole backup its name, and replaces no other file.
func keepBackup(part, path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s was made meanwhile: name another file", path), err)
	}
	return os.Rename(part, path)
}

// receiveBackup copies a backup from a node to w. complete is true if the backup has every write that was acknowledged before it
// began.
func receiveBackup(o adminOptions, c *respclient.Conn, w io.Writer) (facts raftfsm.BackupFacts, complete bool, err error) {
	timer := time.AfterFunc(o.timeout, func() { c.Close() })
	defer timer.Stop()
	reply, err := c.Do("LOCKSTEP", "BACKUP", "BEGIN")
	if err != nil {
		return facts, false, o.answerError(err)
	}
	begun, _ := reply.([]any)
	if len(begun) != 2 {
		return facts, false, fmt.Errorf("the node at %s answered %v", o.addr, reply)
	}
	// A stranger may answer in place of a node. So CheckBackup gives up at the first impossible byte, and the transfer ends after
	// server.BackupMost.
	defer time.AfterFunc(server.BackupMost, func() { c.Close() }).Stop()
	in := &pieces{o: o, c: c, name: fmt.Sprint(begun[0]), timer: timer, w: w}
	facts, err = raftfsm.CheckBackup(in)
	if in.err != nil && in.err != io.EOF {
		return facts, false, in.err // in.err is the cause; err would say only that the backup is cut short
	}
	if err != nil {
		err = fmt.Errorf("the node at %s sent no backup: %w", o.addr, err)
	}
	return facts, begun[1] == int64(1), err
}

// pieces reads a backup from a node, piece by piece, and writes each piece to w.
type pieces struct {
	o     adminOptions
	c     *respclient.Conn
	w     io.Writer
	name  string      // name of the backup on the node
	timer *time.Timer // closes c if the node does not answer in time
	rest  string      // what has not been read yet of the present piece
	last  bool        // the present piece is the last one, because it is smaller than BackupPiece
	err   error
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	if p.rest == "" && p.err == nil {
		if p.rest, p.err = p.next(); p.err == nil {
			_, p.err = io.WriteString(p.w, p.rest)
		}
	}
	if p.rest == "" {
		return 0, p.err
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// next asks for the next piece. After the last one it returns io.EOF.
func (p *pieces) next() (string, error) {
	p.timer.Reset(p.o.timeout)
	reply, err := p.c.Do("LOCKSTEP", "BACKUP", "READ", p.name)
	p.timer.Stop() // the caller's disk may take its time before the next call
	if err != nil {
		return "", p.o.answerError(err)
	}
	piece, _ := reply.(string)
	if piece == "" {
		return "", io.EOF
	}
	if p.last || len(piece) > server.BackupPiece {
		return "", fmt.Errorf("the node at %s sent more than a backup", p.o.addr)
	}
	p.last = len(piece) < server.BackupPiece
	return piece, nil
}

// restore makes a data directory from a backup.
func restore(args []string, stdout io.Writer) error {
	cfg := cluster.Default()
	cfg.Data = ""
	var out outputOptions
	fs := flag.NewFlagSet("restore", flag.ContinueOnError)
	out.define(fs)
	above := int64(0)
	var s3 s3Options
	s3.define(fs)
	defineRestore(fs, &cfg, &above)
	rest, err := parseMixed(fs, args, stdout)
	if err != nil {
		return err
	}
	if len(rest) != 1 || cfg.Data == "" {
		return usageError{errors.New("restore: want one FILE and a directory, such as: lockstep restore locks.backup --data new-data")}
	}
	if above < 0 || above > store.MaxFirstToken {
		return usageError{fmt.Errorf("--tokens-above %d: want 0 to %d", above, int64(store.MaxFirstToken))}
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	if err := cfg.Validate(); err != nil {
		return usageError{err}
	}
	f, err := s3.fetch(context.Background(), rest[0])
	if err != nil {
		return err
	}
	defer f.Close()
	cfg.Time = cluster.NewSystemTime()
	facts, err := cluster.Restore(cfg, f, above)
	if err != nil {
		return fmt.Errorf("%s: %w", rest[0], err)
	}
	advertise := ""
	if cfg.PeerAdvertise != "" {
		advertise = " --peer-advertise " + cfg.PeerAdvertise
	}
	made := append(backupRecord(rest[0], facts), show.Record{{Name: "data", Value: cfg.Data}, {Name: "id", Value: cfg.ID},
		{Name: "peer-listen", Value: cfg.PeerListen}, {Name: "peer-advertise", Value: cfg.PeerAdvertise}}...)
	return errors.Join(out.print(stdout, made, "%s\n%s is the data of node %s, alone in a new cluster. Start it, without --peers:\n  lockstep --id %s --data %s --peer-listen %s%s\nOthers join it with an empty directory and --join.",
		backupText(rest[0], facts), cfg.Data, cfg.ID, cfg.ID, cfg.Data, cfg.PeerListen, advertise), lacks(rest[0], facts))
}

func defineRestore(fs *flag.FlagSet, cfg *cluster.Config, above *int64) {
	fs.StringVar(&cfg.Data, "data", cfg.Data, "`directory` to make; it must be empty or not exist")
	fs.StringVar(&cfg.ID, "id", cfg.ID, "`name` of the node")
	fs.StringVar(&cfg.PeerListen, "peer-listen", cfg.PeerListen, "`host:port` for the other nodes, as it will be started with")
	fs.StringVar(&cfg.PeerAdvertise, "peer-advertise", cfg.PeerAdvertise, "`host:port` under which the other nodes will reach it (default: --peer-listen)")
	fs.StringVar(&cfg.LogStore, "log-store", cfg.LogStore, "`wal|bolt`: how it keeps its log (default wal)")
	fs.Int64Var(above, "tokens-above", 0, "`number`: the fencing tokens of the new cluster are larger, and larger than the time of day in microseconds")
}
