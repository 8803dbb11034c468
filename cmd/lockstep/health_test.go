package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestHealth runs the health check of the container image, first against a node, and then after the node has ended.
func TestHealth(t *testing.T) {
	node := nodes.Start(t, 1)[0]
	_, port, _ := strings.Cut(node.HTTPAddr, ":")
	for _, addr := range []string{node.HTTPAddr, "0.0.0.0:" + port, ":" + port} {
		checkHealth(t, []string{"--http-listen", addr}, exitOK, "ready\n")
	}
	t.Setenv("LOCKSTEP_HTTP_LISTEN", node.HTTPAddr) // serve reads the same variable
	checkHealth(t, nil, exitOK, "ready\n")
	checkHealth(t, []string{"now"}, exitUsage, `unexpected argument "now"`)
	checkHealth(t, []string{"--http-listen", "8379"}, exitUsage, "want the host:port")
	node.Kill()
	checkHealth(t, nil, exitRuntime, "no node answers")

	leaderless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no leader", http.StatusServiceUnavailable)
	}))
	defer leaderless.Close()
	checkHealth(t, []string{"--http-listen", strings.TrimPrefix(leaderless.URL, "http://")}, exitRuntime, "no leader")
}

func checkHealth(t *testing.T, args []string, code int, text string) {
	t.Helper()
	var out, faults bytes.Buffer
	got := run(append([]string{"health"}, args...), &out, &faults)
	if all := out.String() + faults.String(); got != code || !strings.Contains(all, text) {
		t.Errorf("health %q: exit code %d and %q, want %d and %q", args, got, all, code, text)
	}
}
