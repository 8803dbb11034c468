package compose

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/ports"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// password is the password of this project. It is not the default one, so a node that has it must have read it from the file.
const password = "of the test's own file"

// readyTimeout is for a container to become healthy. askTimeout is for a command, which may have to wait for a leader.
const (
	readyTimeout = 60 * time.Second
	askTimeout   = 5 * time.Second
)

// services has the names of the services in docker-compose.yml.
var services = []string{"n1", "n2", "n3"}

// project is the services of docker-compose.yml.
type project struct {
	*engine
	name         string
	files        []string // of docker-compose
	passwordFile string
	tlsDir       string
	addrs        map[string]string // the RESP address of each service on this machine
	http         string            // the HTTP address of n1
}

// published matches an address in docker-compose.yml: the local side of a published port, or an address that a node advertises.
var published = regexp.MustCompile(`127\.0\.0\.1:(\d+)`)

// newProject reads docker-compose.yml, and files that change it. It replaces the ports in them by free ones, and the image by the
// image of the test. It uses everything else unchanged.
func newProject(t testing.TB, e *engine, root, image string, changes ...string) *project {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	free := map[string]string{}
	for _, m := range published.FindAllStringSubmatch(string(text), -1) {
		free[m[1]] = ""
	}
	addrs := ports.Addrs(t, len(free))
	for port := range free {
		free[port], addrs = addrs[0], addrs[1:]
	}
	dir := t.TempDir()
	p := &project{engine: e, name: fmt.Sprint("lockstep-test-", os.Getpid()), passwordFile: filepath.Join(dir, "password"), tlsDir: filepath.Join(dir, "tls"),
		addrs: map[string]string{"n1": free["6379"], "n2": free["6380"], "n3": free["6381"]}, http: free["8379"]}
	local := func(addr []byte) []byte {
		_, port, _ := strings.Cut(string(addr), ":")
		if free[port] == "" {
			t.Fatalf("%s is not an address of docker-compose.yml", addr)
		}
		return []byte(free[port])
	}
	own := strings.ReplaceAll(string(published.ReplaceAllFunc(text, local)), "image: lockstep\n", "image: "+image+"\n")
	for service, addr := range p.addrs {
		if addr == "" || !strings.Contains(own, image) {
			t.Fatalf("docker-compose.yml is not as this test knows it: %s has no port, or there is no image", service)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add := func(name, text string) {
		write(name, text)
		p.files = append(p.files, "-f", filepath.Join(dir, name))
	}
	add("docker-compose.yml", own)
	for _, name := range changes {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		add(filepath.Base(name), string(published.ReplaceAllFunc(text, local)))
	}
	write("password", password+"\n")
	// Whatever the umask is, the user in the containers must be able to read the file.
	if err := os.Chmod(p.passwordFile, 0o444); err != nil {
		t.Fatal(err)
	}
	return p
}

// composeRun runs a command of docker-compose.
func (p *project) composeRun(args ...string) string {
	p.t.Helper()
	command := append([]string{"env", "PASSWORD_FILE=" + p.passwordFile, "TLS_DIR=" + p.tlsDir}, p.compose...)
	command = append(append(command, "-p", p.name), p.files...)
	return p.run(append(command, args...)...)
}

// up runs the one command that README.md names, without building the image.
func (p *project) up() {
	p.t.Helper()
	p.composeRun("up", "-d", "--no-build")
	p.waitHealthy(services...)
}

func (p *project) container(service string) string {
	p.t.Helper()
	return p.composeRun("ps", "-q", service)
}

// cut takes a container off the network. mend connects it again under its name.
func (p *project) cut(service string) {
	p.t.Helper()
	p.run("docker", "network", "disconnect", p.name+"_default", p.container(service))
}

func (p *project) mend(service string) {
	p.t.Helper()
	p.run("docker", "network", "connect", "--alias", service, p.name+"_default", p.container(service))
}

// waitHealthy waits until Docker calls the services' containers healthy.
func (p *project) waitHealthy(names ...string) {
	p.t.Helper()
	for _, service := range names {
		p.eventually(service+" is not healthy", func() error {
			state, err := p.try("docker", "inspect", "-f", "{{.State.Status}} {{.State.Health.Status}}", p.container(service))
			if err == nil && state != "running healthy" {
				err = errors.New(state)
			}
			return err
		})
	}
}

// eventually polls until ok returns nil. The test fails if that takes too long.
func (p *project) eventually(what string, ok func() error) {
	p.t.Helper()
	for end := time.Now().Add(readyTimeout); ; time.Sleep(100 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s after %v: %v\n%s", what, readyTimeout, err, p.composeRun("logs", "--tail", "40"))
		}
	}
}

// conn is a connection of a client that knows the password and does not wait for ever.
type conn struct{ *respclient.Conn }

func dial(addr string) (conn, error) {
	c, err := respclient.Dial(addr, askTimeout)
	if err != nil {
		return conn{}, err
	}
	if _, err := (conn{c}).ask("AUTH", password); err != nil {
		return conn{}, errors.Join(err, c.Close())
	}
	return conn{c}, nil
}

// ask sends one command. A timeout ends the connection.
func (c conn) ask(args ...string) (any, error) {
	timer := time.AfterFunc(askTimeout, func() { c.Close() })
	defer timer.Stop()
	return c.Do(args...)
}

// ask sends one command to a service, over a new connection.
func (p *project) ask(service string, args ...string) (any, error) {
	c, err := dial(p.addrs[service])
	if err != nil {
		return nil, err
	}
	reply, err := c.ask(args...)
	if closeErr := c.Close(); closeErr != nil && !errors.Is(closeErr, net.ErrClosed) && err == nil {
		err = closeErr
	}
	return reply, err
}

// status returns the fields of LOCKSTEP STATUS of a service.
func (p *project) status(service string) (map[string]string, error) {
	reply, err := p.ask(service, "LOCKSTEP", "STATUS")
	if err != nil {
		return nil, err
	}
	return respclient.Pairs(reply)
}

// leader returns the service that leads, and the other services.
func (p *project) leader() (leader string, others []string) {
	p.t.Helper()
	p.eventually("no leader", func() error {
		leader, others = "", nil
		for _, service := range services {
			st, err := p.status(service)
			if err != nil {
				return err
			}
			if st["role"] == "leader" {
				leader = service
			} else {
				others = append(others, service)
			}
		}
		if leader == "" {
			return errors.New("nobody leads")
		}
		return nil
	})
	return leader, others
}

// waitEqual waits until all services report the same applied index and the same state hash.
func (p *project) waitEqual() string {
	p.t.Helper()
	var first string
	p.eventually("the nodes differ", func() error {
		first = ""
		for _, service := range services {
			st, err := p.status(service)
			if err != nil {
				return err
			}
			state := st["applied"] + " " + st["state-hash"]
			if first == "" {
				first = state
			}
			if st["state-hash"] == "" || state != first {
				return fmt.Errorf("%s has %s, n1 has %s", service, state, first)
			}
		}
		return nil
	})
	return first
}
