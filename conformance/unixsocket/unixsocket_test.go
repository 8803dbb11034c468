package unixsocket

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// shim builds this package's replacement of redis-server. It returns an environment in which the PATH begins with the replacement's
// directory.
func shim(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "redis-server"), "./redis-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "LOCKSTEP_BINARY="+nodes.Binary(t))
}

// overSocket plays transcripts over a Unix socket.
type overSocket string

func (s overSocket) Dial() (net.Conn, error) { return net.Dial("unix", string(s)) }
func (overSocket) Advance(d time.Duration)   { time.Sleep(d) }

// TestTrap09UnixSocket starts the server in the two ways in which suites do, and plays transcripts of the clients that have such
// suites.
func TestTrap09UnixSocket(t *testing.T) {
	env := shim(t)
	for name, start := range map[string]struct{ args, stdin string }{
		"command line":   {"--port 0 --save no --appendonly yes --unixsocket SOCKET", ""},
		"standard input": {"-", "port 0\nunixsocket SOCKET\nsave \"\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			stop := startServer(t, env, strings.Fields(strings.ReplaceAll(start.args, "SOCKET", socket)), strings.ReplaceAll(start.stdin, "SOCKET", socket))
			for _, file := range []string{"row-1-2-02-python-redis-lock", "row-1-2-04-redsync", "row-1-1-09-blpop-of-a-signal", "row-2-11-auth-and-select-only"} {
				src, err := os.ReadFile(filepath.Join("..", "transcript", "testdata", "clients", file+".txt"))
				if err != nil {
					t.Fatal(err)
				}
				f, err := transcript.Parse(file, src)
				if err != nil {
					t.Fatal(err)
				}
				transcript.Run(t, f, overSocket(socket))
			}
			if err := stop(); err != nil {
				t.Errorf("the server ended with %v", err)
			}
			if _, err := os.Stat(socket); !os.IsNotExist(err) {
				t.Errorf("the socket is still there: %v", err)
			}
		})
	}
	if out, err := command(env, "redis-server", "--nonsense", "1").CombinedOutput(); err == nil {
		t.Errorf("a setting that nobody knows is taken: %s", out)
	}
}

// command returns a command whose program is looked up on the PATH in env, as the suites do it.
func command(env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/usr/bin/env", append([]string{name}, args...)...)
	cmd.Env = env
	return cmd
}

func startServer(t *testing.T, env, args []string, stdin string) (stop func() error) {
	t.Helper()
	cmd := command(env, "redis-server", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var faults bytes.Buffer
	cmd.Stderr = &faults
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "ready to accept connections") {
			return func() error {
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					return err
				}
				return cmd.Wait()
			}
		}
	}
	t.Fatalf("the server did not start: %s", faults.String())
	return nil
}

// foreign skips the test outside `make conformance` and without its tool. On CI, a missing tool is a failure.
func foreign(t *testing.T, tool string) {
	t.Helper()
	if os.Getenv("LOCKSTEP_CLIENTS") == "" {
		t.Skip("`make conformance` runs the suites of foreign clients")
	}
	if _, err := exec.LookPath(tool); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed: CI runs every suite", tool)
		}
		t.Skipf("skipped: %s is not installed", tool)
	}
}

// TestTrap09TestsOfRedsync runs redsync's own tests, which use 48 servers and six drivers.
func TestTrap09TestsOfRedsync(t *testing.T) {
	foreign(t, "go")
	runSuite(t, "run-redsync.sh")
}

// TestTrap09TestsOfPythonRedisLock runs python-redis-lock's own tests, each of which starts a server on a socket.
func TestTrap09TestsOfPythonRedisLock(t *testing.T) {
	foreign(t, "python3")
	runSuite(t, "run-python-redis-lock.sh")
}

func runSuite(t *testing.T, script string) {
	t.Helper()
	cmd := exec.Command("bash", script)
	cmd.Env = append(shim(t), "SCRATCH="+t.TempDir())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
}
