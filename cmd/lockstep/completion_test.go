package main

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/show"
	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestCompletion: each shell that is installed reads its script, and bash proposes what it should.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out strings.Builder
		if code := run([]string{"completion", shell}, &out, io.Discard); code != exitOK || !strings.Contains(out.String(), "lock-waiters") || !strings.Contains(out.String(), "failover-wait") {
			t.Errorf("%s: exit code %d: %.200s", shell, code, out.String())
		}
		if path, err := exec.LookPath(shell); err == nil {
			cmd := exec.Command(path, "-n")
			cmd.Stdin = strings.NewReader(out.String())
			if said, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", shell, err, said)
			}
		}
	}
	for _, bad := range [][]string{{"completion"}, {"completion", "csh"}, {"completion", "bash", "zsh"}} {
		if code := run(bad, io.Discard, io.Discard); code != exitUsage {
			t.Errorf("%q: exit code %d", bad, code)
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	for line, want := range map[string]string{
		"lockstep lock-":                         "lock-info lock-stats lock-waiters",
		"lockstep --failover-":                   "--failover-wait",
		"lockstep serve --log-le":                "--log-level",
		"lockstep locks --min-":                  "--min-age --min-waiters",
		"lockstep locks --output ":               "text json",
		"lockstep backup --log-le":               "",
		"lockstep help compl":                    "completion",
		"lockstep completion f":                  "fish",
		"lockstep lock --wait 1s job -- lockste": "",
	} {
		words := strings.Split(line, " ")
		script := bashCompletion() + "COMP_WORDS=(" + strings.Join(quoted(words), " ") + "); COMP_CWORD=" + itoa(len(words)-1) + "; _lockstep; echo \"${COMPREPLY[*]}\""
		out, err := exec.Command(bash, "--norc", "-c", script).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || want != "" && got != want || want == "" && strings.Contains(got, "--") {
			t.Errorf("%q: %v, %q, want %q", line, err, got, want)
		}
	}
}

func quoted(words []string) (list []string) {
	for _, w := range words {
		list = append(list, "'"+w+"'")
	}
	return list
}

func itoa(n int) string { return string(rune('0' + n)) }

// TestCommandsAreComplete: completion and help know the same commands.
func TestCommandsAreComplete(t *testing.T) {
	for _, name := range commandNames() {
		if helpOf(name) == "" {
			t.Errorf("help does not know %s", name)
		}
	}
	for line := range strings.SplitSeq(helpText(), "\n") {
		if m := commandLine.FindStringSubmatch(line); m != nil && m[1][0] != '-' && !slices.Contains(commandNames(), m[1]) {
			t.Errorf("completion does not know %s", m[1])
		}
	}
}

// TestWatch: status is shown again and again, also while the node is gone, until SIGINT.
func TestWatch(t *testing.T) {
	node := nodes.Start(t, 1)[0]
	cmd := exec.Command(nodes.Binary(t), "status", "--watch", "100ms", "--timeout", "1s", "--addr", node.Addr)
	var mu sync.Mutex
	var out strings.Builder
	cmd.Stdout = writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(b)
	})
	cmd.Env = environ.Environ()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := func() string {
		mu.Lock()
		defer mu.Unlock()
		return out.String()
	}
	await(t, "the status is shown twice", func() bool { return strings.Count(said(), "state-hash") >= 2 })
	node.Kill()
	await(t, "it is said that the node does not answer", func() bool { return strings.Contains(said(), "lockstep: ") })
	node.Run()
	node.WaitReady()
	shown := strings.Count(said(), "state-hash")
	await(t, "the status is shown again", func() bool { return strings.Count(said(), "state-hash") > shown })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if code := run([]string{"status", "--watch", "1ms", "--addr", node.Addr}, io.Discard, io.Discard); code != exitUsage {
		t.Errorf("--watch 1ms: exit code %d", code)
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestMayLose(t *testing.T) {
	member := func(voter, up int64) show.Record {
		reply := []any{[]any{"id", "n1", "voter", voter, "up", up}}
		list, err := show.RecordsOf(reply)
		if err != nil {
			t.Fatal(err)
		}
		return list[0]
	}
	for _, c := range []struct {
		members []show.Record
		want    string
	}{
		{[]show.Record{member(1, 1)}, "1 of 1 voters are up: the cluster may lose none"},
		{[]show.Record{member(1, 1), member(1, 1), member(1, 1), member(0, 1)}, "3 of 3 voters are up: the cluster may lose 1 more"},
		{[]show.Record{member(1, 1), member(1, 0), member(1, 1)}, "2 of 3 voters are up: the cluster may lose none"},
		{[]show.Record{member(1, 1), member(1, 0), member(1, 0)}, "1 of 3 voters are up: too few for a majority, so no command is executed"},
		{[]show.Record{member(0, 1)}, "no voters are known"},
		{[]show.Record{member(1, 1), member(1, 1), member(1, 1), member(1, 1), member(1, 1)}, "5 of 5 voters are up: the cluster may lose 2 more"},
	} {
		if got := mayLose(c.members); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
