package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/s3"
)

const s3Secret = "only-the-storage-knows"

// storage starts a stand-in for S3, and sets the variables by which the commands of this process find it.
func storage(t *testing.T) *s3.Storage {
	t.Helper()
	s := s3.Start(t)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": s.URL, "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": s3Secret} {
		t.Setenv(name, value)
	}
	return s
}

// TestBackupToS3: a backup goes to an object and comes back from it, by verify, inspect and restore. No object is overwritten.
func TestBackupToS3(t *testing.T) {
	s := storage(t)
	n := nodes.Start(t, 1)[0]
	grantLocks(t, n, 0, 20)
	const url = "s3://" + s3.Name + "/day/one.backup"
	data := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{{"backup", url, "--addr", n.Addr}, {"backup", "--verify", url}, {"restore", url, "--data", data}} {
		if code, out, faults := command(t, args...); code != exitOK || !strings.Contains(out, url+" is whole: 20 keys") {
			t.Errorf("%q: %d %s%s", args, code, out, faults)
		}
	}
	if code, out, faults := command(t, "inspect", url, "--keys"); code != exitOK || strings.Count(out, "\n") != 20 {
		t.Errorf("inspect: %d %s%s", code, out, faults)
	}
	if code, _, faults := command(t, "backup", url, "--addr", n.Addr); code != exitRuntime || !strings.Contains(faults, "exists") {
		t.Errorf("over an object: %d %s", code, faults)
	}
	if code, _, faults := command(t, "restore", "s3://"+s3.Name+"/none", "--data", data+"2"); code != exitRuntime || !strings.Contains(faults, "no such object") {
		t.Errorf("no object: %d %s", code, faults)
	}
	if keys := s.Keys(); !slices.Equal(keys, []string{"day/one.backup"}) {
		t.Errorf("%q", keys)
	}
}

// TestBackupToS3Fails: after each fault of the storage there is an error without a secret, and no object that is no backup. Old backups stay.
func TestBackupToS3Fails(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	grantLocks(t, n, 0, 20)
	const old = "day/lockstep-20200101T000000Z.backup"
	for name, c := range map[string]struct {
		fails func(what string) s3.Fault
		says  string
		left  int // objects, with the old one
	}{
		"wrong bytes stored":    {func(what string) s3.Fault { return s3.Fault{Garble: strings.HasPrefix(what, "PUT")} }, "no backup", 1},
		"wrong bytes read back": {func(what string) s3.Fault { return s3.Fault{Garble: strings.HasPrefix(what, "GET day")} }, "no backup", 1},
		"a cut read":            {func(what string) s3.Fault { return s3.Fault{Cut: strings.HasPrefix(what, "GET day")} }, "no backup", 1},
		"no right to write": {func(what string) s3.Fault {
			return s3.Fault{Status: map[bool]int{true: 403}[strings.HasPrefix(what, "PUT")]}
		}, "AccessDenied", 1},
		"no right to read": {func(what string) s3.Fault {
			return s3.Fault{Status: map[bool]int{true: 403}[strings.HasPrefix(what, "GET day")]}
		}, "could not be read back", 1},
		"no right to delete": {func(what string) s3.Fault {
			return s3.Fault{Status: map[bool]int{true: 403}[strings.HasPrefix(what, "DELETE")], Garble: strings.HasPrefix(what, "PUT")}
		}, "could not be deleted", 2},
		"no right to list": {func(what string) s3.Fault {
			return s3.Fault{Status: map[bool]int{true: 403}[strings.HasPrefix(what, "GET list")]}
		}, "is whole, but old backups were not deleted", 2},
		"no right to delete old": {func(what string) s3.Fault { return s3.Fault{Status: map[bool]int{true: 403}[what == "DELETE "+old]} }, "is whole, but an old backup was not deleted", 2},
	} {
		s := storage(t)
		s.Put(old, []byte("an old one"))
		s.Fail(c.fails)
		code, out, faults := command(t, "backup", "s3://"+s3.Name+"/day/", "--keep", "1", "--addr", n.Addr)
		if code != exitRuntime || !strings.Contains(faults, c.says) || strings.Contains(out+faults, s3Secret) || strings.Contains(out, "is whole") {
			t.Errorf("%s: %d %s%s", name, code, out, faults)
		}
		if _, there := s.Get(old); !there || len(s.Keys()) != c.left {
			t.Errorf("%s: %q are left", name, s.Keys())
		}
	}
}

// TestSeries: a series in a directory or a bucket gets a backup with the time in its name, keeps what it shall keep, and leaves other files alone.
func TestSeries(t *testing.T) {
	s := storage(t)
	n := nodes.Start(t, 1)[0]
	dir := t.TempDir() + "/"
	names := []string{"lockstep-20200101T000000Z.backup", "lockstep-20200102T000000Z.backup", "lockstep-20200103T000000Z-incomplete.backup", "lockstep-20200104T000000Z.backup", "lockstep-2020.backup", "mine"}
	for _, name := range names {
		s.Put("day/"+name, nil)
		if err := os.WriteFile(dir+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []string{dir, "s3://" + s3.Name + "/day/"} {
		code, out, faults := command(t, "backup", to, "--keep", "2", "--addr", n.Addr)
		if code != exitOK || !strings.Contains(out, "is whole") || !strings.Contains(out, "3 old backups were deleted") {
			t.Errorf("%s: %d %s%s", to, code, out, faults)
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range list {
		left = append(left, "day/"+e.Name())
	}
	for _, found := range [][]string{left, s.Keys()} {
		if len(found) != 4 || !slices.Contains(found, "day/"+names[3]) || !slices.Contains(found, "day/mine") || !slices.Contains(found, "day/lockstep-2020.backup") {
			t.Errorf("%q are left", found)
		}
	}
	for _, args := range [][]string{{"file", "--keep", "2"}, {"file", "--every", "1h"}, {dir, "--every", "1ms"}, {dir, "--keep", "-1"}, {dir, "--keep-for", "-1h"}} {
		if code, _, _ := command(t, append([]string{"backup"}, args...)...); code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

// TestSeriesWithoutALeader: a backup that may lack writes gets a name that says so, and nothing is deleted for it.
func TestSeriesWithoutALeader(t *testing.T) {
	list, _ := loseTheMajority(t)
	list[2].Run()
	until(t, "the survivor to serve", func() bool {
		_, err := list[2].Do("PING")
		return err == nil
	})
	s := storage(t)
	dir := t.TempDir() + "/"
	const old = "lockstep-20200101T000000Z.backup"
	s.Put("day/"+old, nil)
	if err := os.WriteFile(dir+old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{dir, "s3://" + s3.Name + "/day/"} {
		if code, out, faults := command(t, "backup", to, "--keep", "1", "--addr", list[2].Addr); code != exitIncomplete || !strings.Contains(out, "-incomplete.backup is undamaged") || !strings.Contains(faults, "may lack") {
			t.Errorf("%s: %d %s%s", to, code, out, faults)
		}
	}
	files, err := filepath.Glob(dir + "*")
	if err != nil || len(files) != 2 || len(s.Keys()) != 2 || !slices.Contains(s.Keys(), "day/"+old) || !slices.Contains(files, dir+old) {
		t.Errorf("%q, %q, %v", files, s.Keys(), err)
	}
}

// TestOutdated: the newest complete backup is never deleted, nor the present one, whatever the clocks and the flags say.
func TestOutdated(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	day := func(n int, partial bool) string { return nameInSeries(now.AddDate(0, 0, -n), partial) }
	just := day(0, false)
	names := []string{just, day(1, false), day(2, true), day(3, false), day(40, true), day(41, false)}
	for _, c := range []struct {
		opts  seriesOptions
		names []string
		just  string
		want  []string
	}{
		{seriesOptions{}, names, just, nil},
		{seriesOptions{keep: 1}, names, just, []string{day(1, false), day(2, true), day(3, false), day(40, true), day(41, false)}},
		{seriesOptions{keep: 2}, names, just, []string{day(2, true), day(3, false), day(40, true), day(41, false)}},
		{seriesOptions{keep: 9}, names, just, nil},
		{seriesOptions{keepFor: 720 * time.Hour}, names, just, []string{day(40, true), day(41, false)}},
		{seriesOptions{keep: 3, keepFor: 36 * time.Hour}, names, just, []string{day(2, true), day(3, false), day(40, true), day(41, false)}},
		// The clock was set back by a year: the present backup has an older name than the others.
		{seriesOptions{keep: 1}, []string{day(365, false), day(1, false), day(3, false)}, day(365, false), []string{day(3, false)}},
		{seriesOptions{keep: 1, keepFor: time.Second}, []string{day(365, false), day(1, true)}, day(365, false), []string{day(1, true)}},
		{seriesOptions{keepFor: time.Second}, []string{day(365, false), day(1, false), day(2, false)}, day(365, false), []string{day(2, false)}},
		{seriesOptions{keep: 1}, []string{just, "lockstep-99999999T999999Z.backup", "../" + just, "x"}, just, nil},
	} {
		if got := c.opts.outdated(c.names, c.just, now); !slices.Equal(got, c.want) {
			t.Errorf("%+v of %q: %q, want %q", c.opts, c.names, got, c.want)
		}
	}
}

// TestBackupEvery: a process takes one backup after the other, says so, goes on after a failure, and ends at a signal.
func TestBackupEvery(t *testing.T) {
	s := s3.Start(t)
	n := nodes.Start(t, 1)[0]
	failed := 0
	s.Fail(func(what string) s3.Fault {
		if strings.HasPrefix(what, "PUT") && failed == 0 {
			failed++
			return s3.Fault{Status: 403}
		}
		return s3.Fault{}
	})
	credentials := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(credentials, []byte("[default]\naws_access_key_id = me\naws_secret_access_key = "+s3Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, faults bytes.Buffer
	cmd := exec.Command(nodes.Binary(t), "backup", "s3://"+s3.Name+"/day/", "--every", "1s", "--keep", "2", "--addr", n.Addr, "--s3-endpoint", s.URL, "--s3-region", "here", "--s3-credentials-file", credentials)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &faults, environ.Environ()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "a third backup, and the end of the first", func() bool {
		puts := 0
		for _, what := range s.Asked() {
			if strings.HasPrefix(what, "PUT") {
				puts++
			}
		}
		return puts >= 4 && len(s.Keys()) == 2
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, faults.String())
	}
	if strings.Count(out.String(), "is whole: 0 keys") < 2 || !strings.Contains(faults.String(), "AccessDenied") || strings.Contains(out.String()+faults.String(), s3Secret) {
		t.Errorf("%s\n%s", out.String(), faults.String())
	}
}

// TestBackupThroughPipes: `backup -` writes to the standard output alone, and `restore -` reads from the standard input; a stream that was cut
// is refused.
func TestBackupThroughPipes(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	grantLocks(t, n, 0, 20)
	code, out, faults := command(t, "backup", "-", "--addr", n.Addr)
	if code != exitOK || !strings.HasPrefix(out, "LKBACKUP") || !strings.Contains(faults, "- is whole: 20 keys") {
		t.Fatalf("%d %.20q %s", code, out, faults)
	}
	through := func(input string, args ...string) (int, string) {
		cmd := exec.CommandContext(t.Context(), nodes.Binary(t), args...)
		var all bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = strings.NewReader(input), &all, &all, environ.Environ()
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), all.String()
	}
	data := filepath.Join(t.TempDir(), "data")
	for name, input := range map[string]string{"cut": out[:len(out)-1], "longer": out + "x", "empty": "", "other": strings.Repeat("x", 1<<20)} {
		if code, all := through(input, "restore", "-", "--data", data); code != exitRuntime || !strings.Contains(all, "not a whole lockstep backup") {
			t.Errorf("%s: %d %s", name, code, all)
		}
	}
	for _, args := range [][]string{{"backup", "--verify", "-"}, {"inspect", "-"}, {"restore", "-", "--data", data}} {
		if code, all := through(out, args...); code != exitOK || !strings.Contains(all, "20") {
			t.Errorf("%q: %d %s", args, code, all)
		}
	}
	if got := fmt.Sprint(surveyed(t, data).Contents.Locks); got != "20" {
		t.Errorf("restored: %s locks", got)
	}
}

// TestSignalEndsAnUpload: a signal during an upload is an error, and the storage keeps no object.
func TestSignalEndsAnUpload(t *testing.T) {
	s := storage(t)
	n := nodes.Start(t, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	s.Fail(func(what string) s3.Fault {
		if strings.HasPrefix(what, "PUT") {
			cancel()
			return s3.Fault{Hang: true}
		}
		return s3.Fault{}
	})
	o := adminOptions{addr: n.Addr, timeout: 10 * time.Second}
	if _, _, err := takeToBucket(ctx, o, new(s3Options), func(bool) string { return "s3://" + s3.Name + "/x" }); err == nil || len(s.Keys()) > 0 {
		t.Errorf("%v, %q", err, s.Keys())
	}
}
