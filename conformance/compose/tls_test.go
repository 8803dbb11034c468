package compose

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/certs"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// requireGuardedHTTP checks that HTTP is reachable from outside the containers, and shows the process only to a user with a password.
func (p *project) requireGuardedHTTP() {
	p.t.Helper()
	client := http.Client{Timeout: askTimeout}
	for _, c := range []struct {
		path, password string
		want           int
	}{{"/readyz", "", 200}, {"/metrics", "", 200}, {"/debug/pprof/", "", 401}, {"/debug/pprof/", "wrong", 401}, {"/debug/pprof/", password, 200}} {
		request, err := http.NewRequest("GET", "http://"+p.http+c.path, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if c.password != "" {
			request.SetBasicAuth("default", c.password)
		}
		reply, err := client.Do(request)
		if err != nil {
			p.t.Errorf("%s: %v", c.path, err)
			continue
		}
		if reply.StatusCode != c.want {
			p.t.Errorf("%s with password %q: %s, want %d", c.path, c.password, reply.Status, c.want)
		}
		if err := reply.Body.Close(); err != nil {
			p.t.Error(err)
		}
	}
}

// TestComposeTLS: with deploy/docker-compose.tls.yml, clients with TLS take locks at each node, and plain clients get no answer.
func TestComposeTLS(t *testing.T) {
	if os.Getenv("LOCKSTEP_COMPOSE") == "" {
		t.Skip("`make compose` runs docker-compose.yml under a Docker engine")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t)
	image := fmt.Sprint("lockstep-test-", os.Getpid())
	e.buildImage(root, image)
	e.requireContainers(image)
	p := newProject(t, e, root, image, "deploy/docker-compose.tls.yml")
	config := p.makeCertificates()
	t.Cleanup(func() { p.composeRun("down", "--volumes", "--timeout", "5") })
	p.up()
	for _, service := range services {
		raw, err := tls.DialWithDialer(&net.Dialer{Timeout: askTimeout}, "tcp", p.addrs[service], config)
		if err != nil {
			t.Fatal(service, err)
		}
		c := conn{respclient.NewConn(raw)}
		for _, step := range [][]string{{"AUTH", password}, {"SET", "lock-" + service, "me", "NX", "PX", "30000"}} {
			if got, err := c.ask(step...); got != "OK" || err != nil {
				t.Errorf("%s of %s: %v, %v", step[0], service, got, err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if plain, err := dial(p.addrs[service]); err == nil {
			t.Errorf("%s answers a plain client: %v", service, plain.Close())
		}
	}
}

// makeCertificates writes the files of TLS_DIR, which the user in the containers can read. It returns a client's configuration.
func (p *project) makeCertificates() *tls.Config {
	p.t.Helper()
	if err := os.Mkdir(p.tlsDir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	files, config, err := certs.Make(p.tlsDir)
	if err == nil {
		cert, key := filepath.Join(p.tlsDir, "cert.pem"), filepath.Join(p.tlsDir, "key.pem")
		err = errors.Join(os.Rename(files.Cert, cert), os.Rename(files.Key, key), os.Chmod(cert, 0o444), os.Chmod(key, 0o444))
	}
	if err != nil {
		p.t.Fatal(err)
	}
	config.Certificates = nil // a client needs none
	return config
}

// TestImageVersion: the image's label names the version of the program.
func TestImageVersion(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("..", "..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join("..", "..", "cmd", "lockstep", "version.go"))
	if err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`org\.opencontainers\.image\.version=(\S+)`).FindSubmatch(file)
	if label == nil || !strings.Contains(string(source), fmt.Sprintf("const version = %q", label[1])) {
		t.Errorf("the image's label is %q", label)
	}
}
