package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/raftfsm"
)

func TestDefaultIsValid(t *testing.T) {
	cfg := Default()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.Peers = []Peer{{ID: "n1", Addr: "a:1"}, {ID: "n2", Addr: "b:1"}, {ID: "n3", Addr: "c:1"}}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// Validate reports every fault, each naming its flag.
func TestValidateReportsEveryFault(t *testing.T) {
	cfg := Default()
	cfg.ID, cfg.FailoverWait, cfg.Data, cfg.PeerListen = "a b", 0, "", "nowhere"
	cfg.Peers = []Peer{{ID: "n1", Addr: "host:1"}, {ID: "n1", Addr: "host:2"}, {ID: "n2", Addr: "host:1"}, {ID: "n3", Addr: "host"}, {ID: "", Addr: "host:4"}}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--id", "--failover-wait", "--data", "--peer-listen", "n1 twice",
		"n1 and n2 the same address", `"n3=host"`, `"=host:4"`, "does not include this node"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	for i := range 65 {
		cfg.Peers = append(cfg.Peers, Peer{ID: fmt.Sprint("m", i), Addr: fmt.Sprint("m:", i+1)})
	}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "a cluster may have 64") {
		t.Errorf("65 nodes and more: %v", err)
	}
	cfg = Default()
	cfg.Ephemeral, cfg.Data, cfg.PeerListen = true, "", ""
	if err := cfg.Validate(); err != nil {
		t.Errorf("an ephemeral node needs no directory and no port: %v", err)
	}
	cfg.Peers = []Peer{{ID: "n1", Addr: "a:1"}, {ID: "n2", Addr: "b:1"}}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "--ephemeral") {
		t.Error(err)
	}
}

// A node sends a write again until --failover-wait is over. Until then, the state must remember that the write has been executed.
func TestFailoverWaitEndsBeforeAnswersAreForgotten(t *testing.T) {
	cfg := Default()
	cfg.FailoverWait = maxFailoverWait
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	for _, wait := range []time.Duration{maxFailoverWait + 1, raftfsm.OriginLifetime * time.Millisecond, 1<<63 - 1} {
		cfg.FailoverWait = wait
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "--failover-wait") {
			t.Errorf("%v: %v", wait, err)
		}
	}
}

func TestPeerAddr(t *testing.T) {
	cfg := Default()
	if got := cfg.peerAddr(); got != cfg.PeerListen {
		t.Error(got)
	}
	cfg.PeerAdvertise = "host:7"
	if got := cfg.peerAddr(); got != "host:7" {
		t.Error(got)
	}
	cfg.Peers = []Peer{{ID: "n1", Addr: "first:1"}}
	if got := cfg.peerAddr(); got != "first:1" {
		t.Errorf("%s; every member must know this one by the same address", got)
	}
}

// TestValidatePeerTLS gives flags that contradict each other.
func TestValidatePeerTLS(t *testing.T) {
	for want, with := range map[string]peerport.TLS{
		"LOCKSTEP_PEER_SECRET": {Secret: clustertest.Secret, SecretFile: "x"},
		"--peer-secret-file":   {SecretFile: "x", CertFile: "y", KeyFile: "y", CAFile: "y"},
		"give all three":       {CertFile: "y"},
		"--peer-tls optional":  {Optional: true},
		"--peer-tls-name":      {Name: "x", SecretFile: "x"},
	} {
		cfg := Default()
		cfg.PeerTLS = with
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", with, err, want)
		}
	}
}
