package bridge

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// A worker is a process that takes and drops locks by a library. It reads lines, and answers each by one:
//
//	take NAME MS    takes a lock for so long, without waiting
//	renew NAME MS   gives the lease this length from now on
//	drop NAME       releases it
//
// The answers are yes, no, and error TEXT.
type worker struct {
	name  string
	moved bool // it uses lockstep
	mu    sync.Mutex
	in    io.Writer
	out   *bufio.Scanner
}

func startWorker(t *testing.T, name string, moved bool, cmd *exec.Cmd) *worker {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs := &strings.Builder{}
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends then
		_ = cmd.Wait()
		if errs.Len() > 0 {
			t.Logf("%s: %s", name, errs)
		}
	})
	return &worker{name: name, moved: moved, in: in, out: bufio.NewScanner(out)}
}

// do sends a line and returns whether the answer was yes. An error is a fault of the test, unless mayFail.
func (w *worker) do(t *testing.T, mayFail bool, format string, args ...any) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(w.in, line); err != nil {
		t.Errorf("%s: %s: %v", w.name, line, err)
		return false
	}
	if !w.out.Scan() {
		t.Errorf("%s has ended at %s", w.name, line)
		return false
	}
	answer := w.out.Text()
	if strings.HasPrefix(answer, "error") && !mayFail {
		t.Errorf("%s: %s: %s", w.name, line, answer)
	}
	return answer == "yes"
}
