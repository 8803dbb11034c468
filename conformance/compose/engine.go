// Package compose runs docker-compose.yml under a real Docker engine. It cuts the network of the containers, and kills and restarts
// them.
package compose

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startTimeout is how long a Docker daemon may take to answer.
const startTimeout = 30 * time.Second

// must reports whether a machine that cannot run the test must fail it instead of skipping it.
func must() bool { return os.Getenv("LOCKSTEP_COMPOSE") == "must" }

// impossible ends the test because the machine lacks what the test needs.
func impossible(t testing.TB, reason string) {
	t.Helper()
	if must() {
		t.Fatal(reason)
	}
	t.Skip("skipped: " + reason)
}

// engine is a Docker daemon, and the command for compose files.
type engine struct {
	t       testing.TB
	host    string // $DOCKER_HOST
	compose []string
}

// newEngine uses the Docker daemon of this machine. If there is none, it starts one that ends with the test.
func newEngine(t testing.TB) *engine {
	t.Helper()
	e := &engine{t: t, host: os.Getenv("DOCKER_HOST")}
	missing := func(what string) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed: .ci/install has it", what)
		}
		impossible(t, what+" is not installed")
	}
	if _, err := exec.LookPath("docker"); err != nil {
		missing("docker")
	}
	if _, err := exec.LookPath("docker-compose"); err == nil {
		e.compose = []string{"docker-compose"}
	} else if _, err := e.try("docker", "compose", "version"); err == nil {
		e.compose = []string{"docker", "compose"}
	} else {
		missing("docker-compose")
	}
	if _, err := e.try("docker", "info"); err == nil {
		return e
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		missing("dockerd")
	}
	if os.Getuid() != 0 {
		impossible(t, "no Docker daemon answers, and only root can start one")
	}
	e.startDaemon()
	return e
}

// startDaemon starts a daemon that leaves the machine's packet filter and routing alone. Its sockets need a short path.
func (e *engine) startDaemon() {
	t := e.t
	t.Helper()
	dir, err := os.MkdirTemp("", "dk")
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	var log bytes.Buffer
	daemon := exec.Command("dockerd", "--data-root", at("data"), "--exec-root", at("exec"), "--pidfile", at("pid"),
		"--host", "unix://"+at("sock"), "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
	daemon.Stdout, daemon.Stderr = &log, &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() {
		// On SIGINT the daemon ends its containers and its containerd.
		_ = daemon.Process.Signal(os.Interrupt)
		<-ended
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	e.host = "unix://" + at("sock")
	for end := time.Now().Add(startTimeout); ; time.Sleep(100 * time.Millisecond) {
		_, err := e.try("docker", "info")
		if err == nil {
			return
		}
		select {
		case reason := <-ended:
			ended <- reason
			impossible(t, fmt.Sprintf("dockerd cannot run here: %v: %s", reason, lastLines(log.String())))
		default:
		}
		if time.Now().After(end) {
			impossible(t, fmt.Sprintf("dockerd does not answer after %v: %v", startTimeout, err))
		}
	}
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "\n")
}

// try runs a command against the daemon and returns what it prints.
func (e *engine) try(args ...string) (string, error) {
	return e.tryWith(nil, args...)
}

func (e *engine) tryWith(stdin []byte, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = os.Environ()
	if e.host != "" {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+e.host)
	}
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var faults bytes.Buffer
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", strings.Join(args, " "), err, lastLines(string(out)), lastLines(faults.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// run does what try does, for a command that must not fail.
func (e *engine) run(args ...string) string {
	e.t.Helper()
	out, err := e.try(args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// buildImage builds the Dockerfile's last stage with a local binary: the first stage needs an image from the network.
func (e *engine) buildImage(root, tag string) {
	t := e.t
	t.Helper()
	context := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(context, "lockstep"), "./cmd/lockstep")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, dir := range []string{"data", "secret"} {
		if err := os.Mkdir(filepath.Join(context, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	stage, err := lastStage(string(file))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.tryWith([]byte(stage), "docker", "build", "-t", tag, "-f", "-", context); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.run("docker", "image", "rm", tag) })
}

// lastStage returns the Dockerfile's last stage, changed to copy from the build context instead of another stage.
func lastStage(file string) (string, error) {
	_, stage, ok := strings.Cut(file, "\nFROM scratch\n")
	if !ok || !strings.Contains(stage, "--from=build ") {
		return "", errors.New("the Dockerfile's last stage is not as this test knows it")
	}
	return "FROM scratch\n" + strings.ReplaceAll(stage, "--from=build ", ""), nil
}
