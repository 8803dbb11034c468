package peers

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestKilled: if a bench is killed, none of its servers is left.
func TestKilled(t *testing.T) {
	const role = "LOCKSTEP_BENCH_TO_BE_KILLED"
	if dir := os.Getenv(role); dir != "" {
		p, err := (&Site{Dir: dir}).launch("server", nil, "sleep", "60")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("server:", p.cmd.Process.Pid)
		time.Sleep(time.Minute)
	}
	bench := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
	bench.Env = append(os.Environ(), role+"="+t.TempDir())
	out, err := bench.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bench.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "server: "); ok {
			if pid, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !runs(pid) {
		t.Errorf("server %d does not run", pid)
	}
	if err := bench.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); runs(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("server %d is left", pid)
		}
	}
	if err := bench.Wait(); err == nil {
		t.Error("the bench has ended by itself")
	}
}

// runs reports whether a process exists and is no zombie.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z")
}
