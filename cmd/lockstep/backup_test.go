package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// command runs one of the administration commands in this process.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

// TestBackupProcess takes a backup of three nodes under load, and begins a new cluster from it.
func TestBackupProcess(t *testing.T) {
	list := nodes.Start(t, 3, "--requirepass", "secret")
	do := func(n *nodes.Node, args ...string) any {
		t.Helper()
		c := n.Dial()
		if _, err := c.Do("AUTH", "secret"); err != nil {
			t.Fatal(err)
		}
		got, err := c.Do(args...)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return got
	}
	do(list[0], "SET", "lock", "me", "NX", "PX", "600000")
	do(list[0], "RPUSH", "list", "a", "b")
	do(list[0], "ACL", "SETUSER", "ann", "on", ">pass", "~*", "+@all")
	do(list[0], "FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 'from f' end)")
	sha := do(list[0], "SCRIPT", "LOAD", "return 'from the script'").(string)

	stop := make(chan struct{})
	var work sync.WaitGroup
	for i, n := range list {
		c := n.Dial()
		work.Go(func() {
			if _, err := c.Do("AUTH", "secret"); err != nil {
				t.Error(err)
			}
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := c.Do("SET", fmt.Sprintf("load:%d:%d", i, k), "v", "PX", "600000"); err != nil || got != "OK" {
					t.Errorf("under load: %v, %v", got, err)
					return
				}
			}
		})
	}
	file := filepath.Join(t.TempDir(), "locks.backup")
	code, out, errs := command(t, "backup", file, "--addr", list[2].Addr, "--requirepass", "secret")
	close(stop)
	work.Wait()
	if code != exitOK || !strings.Contains(out, "is whole") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	if code, _, errs := command(t, "backup", file, "--addr", list[2].Addr, "--requirepass", "secret"); code != exitRuntime || !strings.Contains(errs, "exists") {
		t.Errorf("over a file: %d %s", code, errs)
	}
	if code, _, errs := command(t, "backup", file+"2", "--addr", list[2].Addr); code != exitRuntime || !strings.Contains(errs, "NOAUTH") {
		t.Errorf("without the password: %d %s", code, errs)
	}
	for _, n := range list {
		n.Kill()
	}
	data := filepath.Join(t.TempDir(), "data")
	spoilt, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	spoilt[len(spoilt)/2] ^= 1
	if err := os.WriteFile(file+".spoilt", spoilt, 0o600); err != nil {
		t.Fatal(err)
	}
	for n, name := range map[int]string{0: file + ".empty", 5: file + ".magic", len(spoilt) / 3: file + ".short"} {
		if err := os.WriteFile(name, spoilt[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := command(t, "restore", name, "--data", data); code != exitRuntime || !strings.Contains(errs, ": not a whole lockstep backup: ") || strings.Contains(errs, "EOF") || strings.Count(errs, "\n") != 1 {
			t.Errorf("of %d bytes: %d %s", n, code, errs)
		}
	}
	for _, args := range [][]string{{"backup", "--verify", file + ".spoilt"}, {"restore", file + ".spoilt", "--data", data}} {
		if code, _, errs := command(t, args...); code != exitRuntime || !strings.Contains(errs, "not a whole lockstep backup") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: %d %s", args, code, errs)
		}
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("a damaged backup has made %s: %v", data, err)
	}
	if code, out, errs := command(t, "restore", file, "--data", data); code != exitOK || !strings.Contains(out, "new cluster") {
		t.Fatalf("restore: %d %s%s", code, out, errs)
	}
	n := nodes.Start(t, 1, "--requirepass", "secret", "--data", data)[0]
	if got := do(n, "GET", "lock"); got != "me" {
		t.Errorf("the lock's owner is %v", got)
	}
	if left, err := strconv.Atoi(fmt.Sprint(do(n, "PTTL", "lock"))); err != nil || left < 500_000 {
		t.Errorf("the lock ends in %d ms, %v", left, err)
	}
	if got := fmt.Sprint(do(n, "LRANGE", "list", "0", "-1"), do(n, "FCALL", "f", "0"), do(n, "EVALSHA", sha, "0")); got != "[a b]from ffrom the script" {
		t.Error(got)
	}
	if got := do(n, "AUTH", "ann", "pass"); got != "OK" {
		t.Error(got)
	}
}

// Whoever makes a backup file chooses the name of the node in it. The printed name must not control the terminal.
func TestNameInABackup(t *testing.T) {
	for name, want := range map[string]string{"n1": "taken on n1 at", "größe": "taken on größe at", "\x1b]0;x\a": `taken on "\x1b]0;x\a" at`, "a\nb": `taken on "a\nb" at`, "\xff": `taken on "\xff" at`} {
		if text := backupText("file", raftfsm.BackupFacts{BackupHead: raftfsm.BackupHead{Node: name}}); !strings.Contains(text, want) {
			t.Errorf("%q: %q", name, text)
		}
	}
}

// TestTwoBackupsToOnePath: a second backup to the same path does not remove the part of the first.
func TestTwoBackupsToOnePath(t *testing.T) {
	var whole bytes.Buffer
	if err := raftfsm.New(nil).Snapshot().WriteBackup(&whole, raftfsm.BackupHead{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	o := adminOptions{addr: ln.Addr().String(), timeout: time.Minute}
	dir := t.TempDir()
	path, second := filepath.Join(dir, "locks.backup"), make(chan error, 1)
	if err := os.WriteFile(path+".1.part", []byte("an interrupted backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		first := true
		for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
			begin, pieces := "-ERR another backup is being read\r\n", []string{""}
			if first {
				begin, pieces = "*2\r\n$1\r\n1\r\n:1\r\n", []string{whole.String(), ""}
			}
			go giveBackup(conn, begin, pieces, first, func() {
				_, _, err := takeBackup(o, path)
				second <- err
			})
			first = false
		}
	}()
	if _, _, err := takeBackup(o, path); err != nil {
		t.Error(err)
	}
	if err := <-second; err == nil || !strings.Contains(err.Error(), "another backup") {
		t.Errorf("the second: %v", err)
	}
	if _, err := readFile(path, raftfsm.CheckBackup); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("left over: %v, %v", list, err)
	}
}

// TestBackupWithoutEnd: whatever a stranger sends in the place of a node, the command ends, and leaves nothing on the disk.
func TestBackupWithoutEnd(t *testing.T) {
	var whole bytes.Buffer
	if err := raftfsm.New(nil).Snapshot().WriteBackup(&whole, raftfsm.BackupHead{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	full := strings.Repeat("x", server.BackupPiece)
	begun := whole.String()[:whole.Len()-40]
	newer := "LKBACKUP\x03"
	for name, c := range map[string]struct {
		pieces []string // the last piece is sent again and again
		says   string
	}{
		"small pieces":   {[]string{"LK", "BA"}, "sent more than a backup"},
		"a large piece":  {[]string{full + "x"}, "sent more than a backup"},
		"another file":   {[]string{full}, "sent no backup"},
		"repeated":       {[]string{begun + full[len(begun):]}, "sent no backup"},
		"a newer format": {[]string{newer + full[len(newer):]}, "version"},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		asked := make(chan int, 1)
		go func() {
			if conn, err := ln.Accept(); err == nil {
				n := 0
				for lines := bufio.NewScanner(conn); n < 99 && lines.Scan(); { // after 99 pieces the client has plainly not given up
					switch lines.Text() {
					case "BEGIN":
						fmt.Fprint(conn, "*2\r\n$1\r\n1\r\n:1\r\n")
					case "READ":
						piece := c.pieces[min(n, len(c.pieces)-1)]
						n++
						fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(piece), piece)
					}
				}
				conn.Close()
				asked <- n
			}
		}()
		dir := t.TempDir()
		_, _, err = takeBackup(adminOptions{addr: ln.Addr().String(), timeout: time.Minute}, filepath.Join(dir, "b"))
		if n := <-asked; n > 2 || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: asked for %d pieces, %v", name, n, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left over: %v, %v", name, left, err)
		}
	}
}

// TestBackupToASlowDisk: a backup goes on even if the disk takes longer for a piece than a node may take to answer.
func TestBackupToASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := backupBehindPipe(t)
		o := adminOptions{timeout: 10 * time.Second}
		var disk slowDisk
		if _, complete, err := receiveBackup(o, c, &disk); err != nil || !complete || disk.Len() == 0 {
			t.Errorf("complete %v, %d bytes, %v", complete, disk.Len(), err)
		}
	})
}

// TestBackupToAFullDisk: the error names the fault of the disk, and does not blame the node.
func TestBackupToAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := backupBehindPipe(t)
		if _, _, err := receiveBackup(adminOptions{timeout: time.Second}, c, fullDisk{}); !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "node") {
			t.Error(err)
		}
	})
}

// backupBehindPipe returns a connection to a node that gives a backup.
func backupBehindPipe(t *testing.T) *respclient.Conn {
	var whole bytes.Buffer
	if err := raftfsm.New(nil).Snapshot().WriteBackup(&whole, raftfsm.BackupHead{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	go giveBackup(theirs, "*2\r\n$1\r\n1\r\n:1\r\n", []string{whole.String(), ""}, false, nil)
	c := respclient.NewConn(ours)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// slowDisk takes a minute for each write.
type slowDisk struct{ bytes.Buffer }

func (d *slowDisk) Write(b []byte) (int, error) {
	time.Sleep(time.Minute)
	return d.Buffer.Write(b)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestBackupThatIsInterrupted: after a signal nothing of the backup is left.
func TestBackupThatIsInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			if conn, err := ln.Accept(); err == nil {
				giveBackup(conn, "*2\r\n$1\r\n1\r\n:1\r\n", []string{"LKBACKUP"}, true, func() {
					if err := syscall.Kill(os.Getpid(), sig); err != nil {
						t.Error(err)
					}
					_, _ = conn.Read(make([]byte, 1)) // until the client has gone
				})
			}
		}()
		dir := t.TempDir()
		_, _, err = takeBackup(adminOptions{addr: ln.Addr().String(), timeout: time.Minute}, filepath.Join(dir, "b"))
		if err == nil || !strings.Contains(err.Error(), "a signal has ended the backup") {
			t.Errorf("%v: %v", sig, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v: left over: %v, %v", sig, left, err)
		}
	}
}

// giveBackup answers the commands of a client that takes a backup. If meanwhile is true, it calls the function do before the first piece.
func giveBackup(conn net.Conn, begin string, pieces []string, meanwhile bool, do func()) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch lines.Text() {
		case "BEGIN":
			fmt.Fprint(conn, begin)
		case "READ":
			if meanwhile {
				meanwhile = false
				do()
			}
			fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(pieces[0]), pieces[0])
			pieces = pieces[1:]
		}
	}
}

// TestBackupOfAStranger: a node that has not applied its log, and so does not know the cluster's password yet, gives no backup without
// it.
func TestBackupOfAStranger(t *testing.T) {
	list := nodes.Start(t, 3)
	admin := list[0].Dial()
	ask(t, admin, "SET", "secretkey", "v")
	ask(t, admin, "ACL", "SETUSER", "bob", "on", ">p", "+@all", "~*")
	ask(t, admin, "CONFIG", "SET", "requirepass", "secret")
	until(t, "the log of the node to have the password", func() bool { // two others are a majority without it
		_, err := list[1].Do("PING")
		return err != nil && strings.HasPrefix(err.Error(), "NOAUTH")
	})
	for _, n := range list {
		n.Kill()
	}
	list[1].Run()
	dial := func() *respclient.Conn {
		var c *respclient.Conn
		until(t, "the node to serve", func() bool {
			conn, err := respclient.Dial(list[1].Addr, time.Second)
			c = conn
			return err == nil
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	if got, err := dial().Do("LOCKSTEP", "BACKUP", "BEGIN"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("a stranger begins a backup: %v, %v", got, err)
	}
	if got, err := dial().Do("LOCKSTEP", "SNAPSHOT"); err == nil || !strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
		t.Errorf("a stranger writes a snapshot: %v, %v", got, err)
	}
}
