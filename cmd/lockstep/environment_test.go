package main

import (
	"strings"
	"testing"
)

// TestUnknownVariables: a variable with a mistyped name is an error, because it would otherwise count as not set.
func TestUnknownVariables(t *testing.T) {
	for _, c := range []struct{ variable, says string }{
		{"LOCKSTEP_REQUIREPAS=secret", "did you mean LOCKSTEP_REQUIREPASS?"},
		{"LOCKSTEP_HTTP_LISTENER=127.0.0.1:1", "did you mean LOCKSTEP_HTTP_LISTEN?"},
		{"LOCKSTEP_PEERS_LISTEN=127.0.0.1:1", "did you mean LOCKSTEP_PEER_LISTEN?"},
		{"LOCKSTEP_PROTECTEDMODE=no", "did you mean LOCKSTEP_PROTECTED_MODE?"},
		{"LOCKSTEP_WHATEVER_THIS_MEANS=", "see `lockstep help`"},
		{"LOCKSTEP_PORT=6379", "LOCKSTEP_PORT is the variable of no flag"},
		{"LOCKSTEP_=1", "see `lockstep help`"},
		// These are flags of this command and of another one, and variables of other programs.
		{"LOCKSTEP_LISTEN=127.0.0.1:1", ""},
		{"LOCKSTEP_USER=bob", ""},
		{"LOCKSTEPPER=1", ""},
		{"PATH=/bin", ""},
		// Variables that Kubernetes sets for services called lockstep and lockstep-peers.
		{"LOCKSTEP_SERVICE_HOST=10.0.0.1", ""},
		{"LOCKSTEP_SERVICE_PORT_RESP=6379", ""},
		{"LOCKSTEP_PORT=tcp://10.0.0.1:6379", ""},
		{"LOCKSTEP_PORT_6379_TCP=tcp://10.0.0.1:6379", ""},
		{"LOCKSTEP_PORT_6379_TCP_ADDR=10.0.0.1", ""},
		{"LOCKSTEP_PEERS_PORT=tcp://10.0.0.1:7379", ""},
		{"LOCKSTEP_PEERS_PORT_7379_TCP_PROTO=tcp", ""},
		{"LOCKSTEP_PEERS_SERVICE_PORT=7379", ""},
	} {
		err := unknownVariables([]string{"A=B", c.variable})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.variable, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("it tells the value: %v", err)
		}
	}
	t.Setenv("LOCKSTEP_REQUIREPASSS", "secret")
	for _, args := range [][]string{nil, {"members"}, {"backup", "x"}, {"health"}, {"restore", "x", "--data", "y"}} {
		refused(t, exitUsage, []string{"LOCKSTEP_REQUIREPASSS", "did you mean LOCKSTEP_REQUIREPASS?"}, args...)
	}
	if code, out := start(t, "help"); code != exitOK {
		t.Errorf("help: exit code %d: %s", code, out)
	}
}
