package lock

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain lets the program of this test wait at the gate, as lockstep does.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == GateCommand {
		var exit ExitError
		if errors.As(Gate(os.Args[2:]), &exit) {
			os.Exit(exit.Code)
		}
	}
	os.Exit(m.Run())
}

// TestGate: the command begins when the gate is opened, and not before. If whoever would open it is gone, the command never begins.
func TestGate(t *testing.T) {
	for opened, want := range map[bool]string{true: "it ran\n", false: ""} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(r.Fd(), unix.F_SETFD, 0); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		cmd := exec.Command(os.Args[0], GateCommand, strconv.Itoa(int(r.Fd())), "echo", "it ran")
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // how it ended is in ProcessState
			close(ended)
		}()
		select {
		case <-ended:
			t.Error("it does not wait")
		case <-time.After(300 * time.Millisecond):
		}
		if opened {
			if _, err := w.Write([]byte{'\n'}); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		r.Close()
		<-ended
		if code := cmd.ProcessState.ExitCode(); out.String() != want || opened != (code == 0) || !opened && code != ExitFailed {
			t.Errorf("opened: %v, exit code %d, output %q", opened, code, out.String())
		}
	}
}
