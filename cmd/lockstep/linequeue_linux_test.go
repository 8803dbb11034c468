package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// unread is a node whose log goes into a pipe that nobody reads. The pipe has room for 4 KiB, and is full.
type unread struct {
	*nodes.Node
	cmd *exec.Cmd
}

func startUnread(t *testing.T, flags ...string) unread {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	addrs := ports.Addrs(t, 3)
	n := unread{Node: &nodes.Node{Addr: addrs[0], HTTPAddr: addrs[1]}}
	n.cmd = exec.Command(nodes.Binary(t), append([]string{"--listen", addrs[0], "--http-listen", addrs[1], "--peer-listen", addrs[2]}, flags...)...)
	n.cmd.Stdout, n.cmd.Stderr = w, w
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
	})
	until(t, "an answer", func() bool {
		got, err := n.Do("PING")
		return err == nil && got == "PONG"
	})
	n.fill(t)
	return n
}

// fill makes the node write more lines than the pipe has room for.
func (n unread) fill(t *testing.T) {
	t.Helper()
	for i := range 30 {
		if got, err := n.Do("EVAL", "redis.log(redis.LOG_WARNING, string.rep('x', 1000)) return 1", "0"); got != int64(1) {
			t.Fatalf("after %d lines: %v, %v", i, got, err)
		}
	}
}

// TestFullPipe: a node whose log nobody reads still serves its clients, and ends on SIGTERM.
func TestFullPipe(t *testing.T) {
	n := startUnread(t, "--ephemeral")
	if got, err := n.Do("SET", "lock", "me", "NX"); got != "OK" {
		t.Fatal(got, err)
	}
	resp, err := http.Get("http://" + n.HTTPAddr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if metric := "\nlockstep_log_lines_lost_total 0\n"; !strings.Contains(string(page), metric) {
		t.Errorf("/metrics does not say %q", metric)
	}
	if err := n.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestBrokenNodeOfAFullPipe: a node that cannot write its Raft log ends, even if nobody reads its last line, which says why.
func TestBrokenNodeOfAFullPipe(t *testing.T) {
	n := startUnread(t, "--data", t.TempDir())
	limit := unix.Rlimit{Cur: 4096, Max: 4096}
	if err := unix.Prlimit(n.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	_, _ = n.Do("SET", "lock", strings.Repeat("v", 100000))
	if _ = n.cmd.Wait(); n.cmd.ProcessState.ExitCode() != exitRuntime {
		t.Errorf("exit code %d", n.cmd.ProcessState.ExitCode())
	}
}
