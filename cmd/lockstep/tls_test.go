package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// ask sends a command to a node and returns the reply as text.
func ask(t *testing.T, c *respclient.Conn, command ...string) string {
	t.Helper()
	reply, err := c.Do(command...)
	if err != nil {
		t.Fatal(command, err)
	}
	return fmt.Sprint(reply)
}

func portIn(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// TestFacesWithTLS: a node tells clients with TLS the TLS addresses of the nodes, and other clients the other ones.
func TestFacesWithTLS(t *testing.T) {
	list, secret := nodes.StartSecret(t, 3)
	leader := nodes.Leader(list)
	for _, n := range list {
		for _, c := range []struct {
			conn                 *respclient.Conn
			sentinel             bool
			data, cluster, named string
		}{
			{secret.Dial(t, n.TLSSentinelAddr), true, leader.TLSAddr, "", ""},
			{dial(t, n.SentinelAddr), true, leader.Addr, "", ""},
			{secret.Dial(t, n.TLSClusterAddr), false, "", leader.TLSClusterAddr, "tls-port"},
			{dial(t, n.ClusterAddr), false, "", leader.ClusterAddr, "port"},
		} {
			if c.sentinel {
				if got, want := ask(t, c.conn, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"), "[127.0.0.1 "+portIn(c.data)+"]"; got != want {
					t.Errorf("%s: a Sentinel client is told %s, want %s", n.ID, got, want)
				}
				continue
			}
			if got, want := ask(t, c.conn, "CLUSTER", "SLOTS"), "[[0 16383 [127.0.0.1 "+portIn(c.cluster)+" "; !strings.HasPrefix(got, want) {
				t.Errorf("%s: a Cluster client is told %s, want %s", n.ID, got, want)
			}
			if got, want := ask(t, c.conn, "CLUSTER", "SHARDS"), " "+c.named+" "+portIn(c.cluster)+" "; !strings.Contains(got, want) {
				t.Errorf("%s: a Cluster client is told %s, want %s", n.ID, got, want)
			}
			if n != leader {
				if _, err := c.conn.Do("SET", "k", "v"); err == nil || !strings.HasSuffix(err.Error(), " "+c.cluster) {
					t.Errorf("%s redirects to %v, want %s", n.ID, err, c.cluster)
				}
			}
		}
		// In its replicated mode, Redisson looks for the leader in the reply to INFO.
		if info := ask(t, secret.Dial(t, n.TLSAddr), "INFO", "replication"); n != leader && !strings.Contains(info, "master_port:"+portIn(leader.TLSAddr)) {
			t.Errorf("%s: INFO with TLS: %s", n.ID, info)
		}
	}
}

func dial(t *testing.T, addr string) *respclient.Conn {
	t.Helper()
	c, err := respclient.Dial(addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestCertificatesByHangup: on SIGHUP, a node reads its certificate files again, and closes no connection.
func TestCertificatesByHangup(t *testing.T) {
	list, secret := nodes.StartSecret(t, 1)
	n := list[0]
	c := secret.Dial(t, n.TLSAddr)
	ask(t, c, "SET", "k", "v")
	if err := n.Process().Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until(t, "a line", func() bool { return strings.Contains(n.Log(), `read="the TLS files"`) })
	if got := ask(t, c, "GET", "k"); got != "v" {
		t.Error(got)
	}
	if got := strings.Count(n.Log(), "the TLS files"); got != 1 {
		t.Errorf("%d lines about it:\n%s", got, n.Log())
	}
	if want := "tls-listen=" + n.TLSAddr; !strings.Contains(n.Log(), want) {
		t.Errorf("the log does not say %s", want)
	}
}

// TestRediscliWithTLS: redis-cli --tls works.
func TestRediscliWithTLS(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("redis-cli is not installed")
	}
	list, secret := nodes.StartSecret(t, 1)
	out, err := exec.Command(cli, "-h", "127.0.0.1", "-p", portIn(list[0].TLSAddr), "--tls", "--cacert", secret.CA, "--cert", secret.Cert, "--key", secret.Key,
		"SET", "lock", "me", "NX", "PX", "30000").CombinedOutput()
	if strings.TrimSpace(string(out)) != "OK" {
		t.Errorf("%s, %v", out, err)
	}
	out, _ = exec.Command(cli, "-h", "127.0.0.1", "-p", portIn(list[0].TLSAddr), "--tls", "--insecure", "PING").CombinedOutput()
	if strings.Contains(string(out), "PONG") {
		t.Errorf("without a certificate: %s", out)
	}
}

// TestTLSOnly: a node may have no plain port. The administration commands reach it over TLS.
func TestTLSOnly(t *testing.T) {
	n, secret := nodes.StartSecret(t, 1, "--listen", "")
	if code, out := n[0].Admin("status", "--addr", n[0].TLSAddr, "--tls", "--cacert", secret.CA, "--cert", secret.Cert, "--key", secret.Key); code != exitOK {
		t.Errorf("exit code %d: %s", code, out)
	}
	if _, err := net.Dial("tcp", n[0].Addr); err == nil {
		t.Error("there is a plain port")
	}
}

// TestPortFaults: if the flags of a port cannot work, the node refuses them before it opens anything.
func TestPortFaults(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--listen", ""}, "neither --listen nor --tls-listen"},
		{[]string{"--tls-listen", "127.0.0.1:0"}, "needs --tls-cert-file"},
		{[]string{"--tls-listen", "127.0.0.1:0", "--tls-cert-file", "/absent", "--tls-key-file", "/absent"}, "tls-cert-file"},
		{[]string{"--tls-listen", "0.0.0.0:0", "--tls-cert-file", "x", "--tls-key-file", "x"}, "there is no password"},
		{[]string{"--tls-advertise", "x:1"}, "needs --tls-listen"},
		{[]string{"--tls-auth-clients", "maybe"}, "want yes, no or optional"},
		{[]string{"--requirepass-file", "/absent"}, "no such file"},
	} {
		if code, out := start(t, append([]string{"serve", "--data", t.TempDir(), "--http-listen", ""}, c.args...)...); code != exitUsage || !strings.Contains(out, c.says) {
			t.Errorf("%q: exit code %d, want %q: %s", c.args, code, c.says, out)
		}
	}
}

// TestSecretsOfTheProcess: a node's password appears neither in the arguments of its process nor in its log.
func TestSecretsOfTheProcess(t *testing.T) {
	const secret = "sehrgeheim"
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{"flag": {"--requirepass", secret}, "with =": {"-requirepass=" + secret}, "file": {"--requirepass-file", file}, "environment": nil} {
		t.Run(name, func(t *testing.T) {
			if name == "environment" {
				t.Setenv("LOCKSTEP_REQUIREPASS_FILE", file)
			}
			n := nodes.Start(t, 1, flags...)[0]
			if got := ask(t, n.Dial(), "AUTH", secret); got != "OK" {
				t.Errorf("AUTH: %s", got)
			}
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n.Process().Pid))
			if err == nil && strings.Contains(string(line), secret) {
				t.Errorf("ps shows %q", line)
			}
			if strings.Contains(n.Log(), secret) {
				t.Error("the log shows it")
			}
			if warned, want := strings.Contains(n.Log(), "on the command line"), len(flags) > 0 && name != "file"; warned != want {
				t.Errorf("a warning: %v", warned)
			}
		})
	}
}

// TestSecretsAtRest: no file, log, metric or report of a node shows a password that a client has sent.
func TestSecretsAtRest(t *testing.T) {
	const secret = "sehrgeheim"
	n := nodes.Start(t, 1, "--requirepass", secret+"0")[0]
	c, watcher := n.Dial(), n.Dial()
	ask(t, c, "AUTH", secret+"0")
	ask(t, watcher, "AUTH", secret+"0")
	ask(t, c, "CONFIG", "SET", "slowlog-log-slower-than", "0")
	ask(t, watcher, "MONITOR")
	ask(t, c, "CONFIG", "SET", "requirepass", secret+"1")
	ask(t, c, "ACL", "SETUSER", "bob", "on", ">"+secret+"2", "+@all", "~*", "(+get ~"+secret+"3)")
	for _, refused := range [][]string{{"AUTH", "bob", secret + "4"}, {"HELLO", "3", "AUTH", "bob", secret + "5"}, {"MIGRATE", "127.0.0.1", "1", "k", "0", "10", "AUTH2", "bob", secret + "6"},
		{"ACL", "SETUSER", "bob", "<" + secret + "7"}, {"AUTH", secret + "8"}} {
		if got, err := c.Do(refused...); err == nil {
			t.Errorf("%v: %v", refused, got)
		}
	}
	if got := ask(t, c, "AUTH", "bob", secret+"2"); got != "OK" {
		t.Error(got)
	}
	ask(t, c, "PING", "the end")
	shown := map[string]string{"the log": n.Log()}
	for text := ""; !strings.Contains(text, "the end"); {
		line, err := watcher.Receive()
		if err != nil {
			t.Fatal(err)
		}
		text = fmt.Sprint(line)
		shown["a monitor"] += text + "\n"
	}
	for _, command := range [][]string{{"INFO", "everything"}, {"SLOWLOG", "GET", "-1"}, {"CLIENT", "LIST"}, {"ACL", "LOG"}, {"LOCKSTEP", "STATUS"}} {
		shown[strings.Join(command, " ")] = ask(t, c, command...)
	}
	if !strings.Contains(shown["SLOWLOG GET -1"], "(redacted)") {
		t.Error("the slow log has nothing that was redacted")
	}
	_, shown["/metrics"] = page(t, http.DefaultClient, "http://"+n.HTTPAddr+"/metrics", "", "", "")
	file := filepath.Join(t.TempDir(), "backup")
	if code, out := n.Admin("backup", file, "--requirepass", secret+"1"); code != exitOK {
		t.Fatal(out)
	}
	for _, dir := range []string{n.Data, filepath.Dir(file)} {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var b []byte
				b, err = os.ReadFile(path)
				shown[filepath.Base(path)] = string(b)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for where, text := range shown {
		// The text secret+"3" is the pattern of a selector, and no password, so it may be shown.
		if at := strings.Index(strings.ReplaceAll(text, secret+"3", ""), secret); at >= 0 {
			t.Errorf("%s shows a password: %.120q", where, strings.ReplaceAll(text, secret+"3", "")[max(0, at-60):])
		}
	}
}
