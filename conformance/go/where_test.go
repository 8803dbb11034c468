// Package conformance runs the lock libraries that Go programs use against the servers in $LOCKSTEP_ADDRS. It is a module of its
// own, so that the server's module does not depend on these libraries.
package conformance

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// masterName is the name that every tutorial gives the master.
const masterName = "mymaster"

// addrs has the addresses of the nodes: the followers first, the leader last.
type addrs struct {
	faces
	TLS faces // the same addresses for TLS
}

type faces struct {
	Plain, Sentinel, Cluster []string
}

// trusted returns a TLS configuration that verifies the server. The parameters are names of environment variables.
func trusted(authority, certificate string) *tls.Config {
	ca, err := os.ReadFile(os.Getenv(authority))
	if err != nil {
		panic(err)
	}
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AppendCertsFromPEM(ca)
	if certificate != "" {
		own, err := tls.LoadX509KeyPair(os.Getenv(certificate), os.Getenv("LOCKSTEP_TLS_KEY"))
		if err != nil {
			panic(err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c
}

// good returns the TLS configuration with the right files.
func good() *tls.Config { return trusted("LOCKSTEP_TLS_CA", "LOCKSTEP_TLS_CERT") }

func list(env string) []string {
	return strings.FieldsFunc(os.Getenv(env), func(r rune) bool { return r == ',' })
}

func addrsNow(t testing.TB) (a addrs) {
	t.Helper()
	control := os.Getenv("LOCKSTEP_CONTROL")
	if control == "" {
		a.faces = faces{list("LOCKSTEP_ADDRS"), list("LOCKSTEP_SENTINELS"), list("LOCKSTEP_CLUSTER")}
		a.TLS = faces{list("LOCKSTEP_TLS_ADDRS"), list("LOCKSTEP_TLS_SENTINELS"), list("LOCKSTEP_TLS_CLUSTER")}
		if len(a.Plain) == 0 {
			t.Fatal("set LOCKSTEP_ADDRS=host:port[,host:port...]")
		}
		return a
	}
	resp, err := http.Get(control + "/addrs")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// failover kills the leader as kill -9 does. It returns when another node leads and the killed one runs again.
func failover(t testing.TB) {
	t.Helper()
	resp, err := http.Post(os.Getenv("LOCKSTEP_CONTROL")+"/failover", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("failover: %s %s %v", resp.Status, body, err)
	}
}

// newKey returns a name that no other test uses.
func newKey() string { return "go:" + rand.Text() }

//go:embed go.mod
var goMod string

var requirement = regexp.MustCompile(`(?m)(\S+) v(\d[^\s+]*)(?:\+incompatible)?( // indirect)?$`)

// version maps each module to the version that go.mod selects. For a replaced module, that is the version in the replace line.
var version = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for _, r := range requirement.FindAllStringSubmatch(goMod, -1) {
		m[r[1]] = r[2]
	}
	return m
})

var results sync.Mutex

// report appends a test's result to $LOCKSTEP_RESULTS when the test ends.
func report(t *testing.T, l library, test string, reason string) {
	t.Cleanup(func() {
		file := os.Getenv("LOCKSTEP_RESULTS")
		if file == "" {
			return
		}
		line := map[string]string{"client": l.client, "version": l.version(), "mode": l.mode, "test": test, "result": "passed"}
		switch {
		case t.Failed():
			line["result"] = "failed"
		case t.Skipped():
			line["result"], line["reason"] = "skipped", reason
		}
		results.Lock()
		defer results.Unlock()
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if err := json.NewEncoder(f).Encode(line); err != nil {
			t.Error(err)
		}
	})
	if reason != "" {
		t.Skip(reason)
	}
}

// eventually calls ok again and again until it returns true or the time is over.
func eventually(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

func TestMain(m *testing.M) {
	seen := map[string]bool{}
	for _, l := range libraries {
		if line := fmt.Sprintf("client %s %s", l.client, l.version()); !seen[line] {
			seen[line] = true
			fmt.Println(line)
		}
	}
	os.Exit(m.Run())
}
