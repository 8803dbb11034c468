package compose

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// apart says that this process runs in a network of its own.
const apart = "LOCKSTEP_COMPOSE_APART"

// TestMain runs the tests in a network of their own, where that can be had, unless there is a Docker daemon to use. In the machine's own
// network, the firewall of a Docker that ran there drops what the containers of the tests send each other.
func TestMain(m *testing.M) {
	if os.Getenv("LOCKSTEP_COMPOSE") == "" || os.Getenv(apart) != "" || exec.Command("docker", "info").Run() == nil ||
		exec.Command("unshare", "--net", "ip", "link", "set", "lo", "up").Run() != nil {
		os.Exit(m.Run())
	}
	cmd := exec.Command("unshare", append([]string{"--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh"}, os.Args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, append(os.Environ(), apart+"=1")
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
