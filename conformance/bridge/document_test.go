package bridge

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// TestMigrateDocument: the commands of docs/migrate.md do what it says.
func TestMigrateDocument(t *testing.T) {
	needs(t)
	text, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	old := startRedis(t, "redis-server", "--save", "")
	addr := ports.Addrs(t, 1)[0]
	_, oldPort, _ := net.SplitHostPort(old.addr)
	_, port, _ := net.SplitHostPort(addr)
	there := strings.NewReplacer("6380", oldPort, "6379", port, "lockstep --data", nodes.Binary(t)+" --http-listen '' --data")
	dir, ran := t.TempDir(), 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			command, want, compared := strings.Cut(strings.TrimSpace(line), "# ")
			if command == "" {
				continue
			}
			ran++
			command = there.Replace(command)
			if compared {
				command = strings.Replace(command, "redis-cli", "redis-cli --no-raw", 1)
			}
			cmd := exec.Command("sh", "-c", "exec "+command)
			if !compared && strings.HasPrefix(command, "echo") {
				cmd = exec.Command("sh", "-c", command)
			}
			cmd.Dir, cmd.Env = dir, environ.Environ()
			if strings.Contains(command, "--bridge-file") {
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = cmd.Process.Kill()
					_ = cmd.Wait()
				})
				until(t, "the node answers", func() bool {
					reply, err := ask(addr, "PING")
					return err == nil && reply == "PONG"
				})
				continue
			}
			out, err := cmd.CombinedOutput()
			if err != nil || compared && strings.TrimSpace(string(out)) != want {
				t.Errorf("%s: %v, %s, want %s", command, err, out, want)
			}
		}
	}
	if ran != 5 {
		t.Errorf("%d commands, not 5", ran)
	}
}
