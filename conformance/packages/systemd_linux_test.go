package packages

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// boot makes a copy of the system in a namespace (what it writes is in memory, its network is only its loopback), installs the package $1
// in it, and becomes its systemd.
const boot = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$2"
mkdir "$2/written" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/written,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
cp "$1" lockstep.deb
mkdir -p before
pivot_root . before
umount -l /before
mount --make-rshared / # so that services see the secrets that systemd mounts for them
rm -rf /etc/systemd/system /var/lib/lockstep /var/lib/private
mkdir -p /etc/systemd/system
ip link set lo up
dpkg --install /lockstep.deb
printf '[Unit]\nDescription=what the test needs\nRequires=basic.target\nAfter=basic.target\n' >/etc/systemd/system/test.target
export container=lxc
exec /lib/systemd/systemd --system --unit=test.target --show-status=no
`

// machine is a system with a systemd of its own.
type machine struct {
	t   *testing.T
	pid string // of its systemd
}

func start(t *testing.T, deb string) *machine {
	t.Helper()
	tool(t, "unshare", "nsenter", "dpkg", "redis-cli", "ip")
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil || os.Geteuid() != 0 {
		t.Skipf("skipped: needs root and systemd (%v)", err)
	}
	var said bytes.Buffer
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount", "--cgroup", "--uts", "--ipc", "--net", "bash", "-c", boot, "boot", deb, t.TempDir())
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "DEBIAN_FRONTEND=noninteractive"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // what it has said tells more
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s", said.String())
		}
	})
	m := &machine{t: t}
	m.until("systemd to run", func() bool {
		select {
		case <-ended:
			for _, forbidden := range []string{"unshare: ", "mount: ", "pivot_root: "} {
				if strings.Contains(said.String(), forbidden) {
					t.Skipf("skipped: this machine does not let the test make a system in a namespace: %s", said.String())
				}
			}
			t.Fatal("systemd has ended")
		default:
		}
		children, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(cmd.Process.Pid), "task", fmt.Sprint(cmd.Process.Pid), "children"))
		if m.pid = strings.TrimSpace(string(children)); err != nil || m.pid == "" {
			return false
		}
		state, _ := m.run("systemctl", "is-system-running")
		return state == "running" || state == "degraded"
	})
	return m
}

// run runs a command in the machine.
func (m *machine) run(command ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"--target", m.pid, "--all", "--"}, command...)...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// must runs a command that may not fail.
func (m *machine) must(command ...string) string {
	m.t.Helper()
	out, err := m.run(command...)
	if err != nil {
		journal, _ := m.run("journalctl", "--no-pager", "-u", "lockstep", "-n", "30")
		m.t.Fatalf("%q: %v\n%s\n%s", command, err, out, journal)
	}
	return out
}

func (m *machine) until(what string, is func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			state, _ := m.run("systemctl", "status", "--no-pager", "lockstep")
			m.t.Fatalf("no end of waiting for %s\n%s", what, state)
		}
	}
}

func (m *machine) property(name string) string {
	m.t.Helper()
	return m.must("systemctl", "show", "lockstep", "--value", "-p", name)
}

func (m *machine) leads() {
	m.t.Helper()
	m.until("the node to lead", func() bool { return m.property("StatusText") == "leads" })
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	m.must("sh", "-c", `printf '%s' "$2" >"$1"`, "sh", path, text)
}

// TestUnderSystemd: the installed package runs under a real systemd, as its unit says: it starts, survives a process that hangs, reads its
// secrets, has its port opened by systemd, goes on after an upgrade, and leaves only its data when it is removed.
func TestUnderSystemd(t *testing.T) {
	if testing.Short() {
		t.Skip("a system is started")
	}
	deb, _ := packaged(t)
	m := start(t, deb)
	if got := m.property("ActiveState"); got != "inactive" {
		t.Fatalf("the installation has started the node: %s", got)
	}
	m.must("systemctl", "start", "lockstep")
	m.leads()
	if got := m.must("redis-cli", "SET", "lock", "me", "NX", "PX", "3600000"); got != "OK" {
		t.Fatal(got)
	}
	if got := m.must("ps", "-o", "user=", "-p", m.property("MainPID")); got != "lockstep" {
		t.Errorf("the node runs as %s", got)
	}
	m.must("systemctl", "reload", "lockstep")
	m.until("the node to read its files again", func() bool {
		return strings.Contains(m.must("journalctl", "--no-pager", "-u", "lockstep"), "SIGHUP")
	})

	// A process that hangs.
	m.must("mkdir", "-p", "/etc/systemd/system/lockstep.service.d")
	m.write("/etc/systemd/system/lockstep.service.d/test.conf", "[Service]\nWatchdogSec=2s\n")
	m.must("systemctl", "daemon-reload")
	m.must("systemctl", "restart", "lockstep")
	m.leads()
	m.must("kill", "-STOP", m.property("MainPID"))
	m.until("systemd to start it anew", func() bool { return m.property("NRestarts") == "1" })
	m.leads()
	if got := m.must("redis-cli", "GET", "lock"); got != "me" {
		t.Errorf("the lock is %q", got)
	}

	// Secrets that only root can read.
	m.write("/etc/lockstep/secrets/password", "hidden")
	m.must("chmod", "600", "/etc/lockstep/secrets/password")
	m.must("sed", "-i", `s/^#requirepass-file/requirepass-file/; s/^#unixsocket/unixsocket/`, "/etc/lockstep/lockstep.toml")
	m.must("systemctl", "restart", "lockstep")
	m.leads()
	if got := m.must("redis-cli", "GET", "lock"); !strings.HasPrefix(got, "NOAUTH") {
		t.Errorf("without a password: %q", got)
	}
	if got := m.must("redis-cli", "--no-auth-warning", "-s", "/run/lockstep/lockstep.sock", "-a", "hidden", "GET", "lock"); got != "me" {
		t.Errorf("with the password: %q", got)
	}

	// A port that systemd opens: a client starts the node.
	m.must("systemctl", "stop", "lockstep")
	m.must("systemctl", "start", "lockstep.socket")
	if got := m.must("redis-cli", "PING"); !strings.HasPrefix(got, "NOAUTH") {
		t.Errorf("by the socket: %q", got)
	}
	m.leads()
	if got := m.must("redis-cli", "--no-auth-warning", "-a", "hidden", "GET", "lock"); got != "me" {
		t.Errorf("by the socket: %q", got)
	}
	m.must("systemctl", "restart", "lockstep")
	m.leads()

	// An upgrade starts the node anew, and keeps the configuration.
	before := m.property("MainPID")
	m.must("dpkg", "--install", "/lockstep.deb")
	if after := m.property("MainPID"); after == before || after == "0" {
		t.Errorf("after the upgrade, process %s runs, before it process %s", after, before)
	}
	m.leads()
	if got := m.must("redis-cli", "--no-auth-warning", "-a", "hidden", "GET", "lock"); got != "me" {
		t.Errorf("after the upgrade: %q", got)
	}
	m.must("dpkg", "--purge", "lockstep")
	if got := m.must("sh", "-c", "ls /var/lib/private/lockstep; pgrep lockstep || echo nobody"); !strings.Contains(got, "node.json") || !strings.HasSuffix(got, "nobody") {
		t.Errorf("after the removal: %s", got)
	}
}
