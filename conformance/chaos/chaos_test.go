//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/chaos/network"
)

// testSuite makes a cluster of a build with edits. If this machine cannot have one, it skips the test and says why.
func testSuite(t *testing.T, seed uint64, only string, edits ...edit) *suite {
	t.Helper()
	s := &suite{seed: seed, dir: t.TempDir(), out: t.Output(), busy: 6 * time.Second}
	var err error
	s.f, err = newFleet(fleetConfig{nodes: 3, dir: s.dir, seed: seed})
	if errors.Is(err, network.ErrForbidden) {
		t.Skipf("skipping: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if s.f.noDisks != nil {
		t.Logf("without faults of disks: %v", s.f.noDisks)
	}
	t.Cleanup(func() {
		if err := s.f.close(); err != nil {
			t.Error(err)
		}
	})
	if s.kinds, err = chosen(allFaults(), only, true, s.f.noDisks == nil); err != nil {
		t.Fatal(err)
	}
	if len(edits) == 0 {
		s.f.binary, err = testBuild()
	} else {
		s.f.binary, err = build(s.dir, append(testEdits(), edits...))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// testBuild makes the build that has testEdits and no other edits. All tests without edits of their own use that build.
var testBuild func() (string, error)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lockstep-chaos-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testBuild = sync.OnceValues(func() (string, error) { return build(dir, testEdits()) })
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// TestChaos is a short form of `make chaos`.
func TestChaos(t *testing.T) {
	s := testSuite(t, 4, "")
	if err := s.run(30*time.Second, 0); err != nil {
		t.Error(err)
	}
	s.summary()
	for _, f := range s.failures {
		t.Error(f)
	}
	if s.ops["known"] < 500 || len(s.faults) < 3 {
		t.Errorf("only %d operations and these faults: %v", s.ops["known"], s.faults)
	}
}

// TestChaosFindsEarlyAcknowledgement breaks the guarantee on which all others rest: the build acknowledges a write before it is
// replicated.
func TestChaosFindsEarlyAcknowledgement(t *testing.T) {
	finds(t, "not linearizable", "leader alone",
		edit{"cluster/sequencer.go", "\ts.node.pending.begin(b, s.node.cfg.FailoverWait)\n", "\ts.node.pending.begin(b, s.node.cfg.FailoverWait)\n\tb.answer(nil)\n"})
}

// TestChaosFindsLostMessages runs a build whose nodes leave subscribers connected after a snapshot has skipped messages.
func TestChaosFindsLostMessages(t *testing.T) {
	finds(t, "heard later messages, but not", "one alone", edit{"server/hub.go", "\ts.out.abort()\n", "\t_ = s\n"})
}

// TestChaosFindsFallingTokens runs a build in which tokens begin at the leader's time of day with every other entry, and the clocks are
// set back.
func TestChaosFindsFallingTokens(t *testing.T) {
	finds(t, "not linearizable", "clock unsteady",
		edit{"cluster/evaluate.go", "if !txn.TokensCounted() && (b.prev == 0 || !s.node.peers.Older()) {", "if b.prev%2 == 0 {"},
		edit{"store/tokens.go", "t.last = max(t.last, uint64(n))", "t.last = uint64(n)"})
}

// TestChaosFindsMissingEvents runs a build whose nodes leave out some events of locks.
func TestChaosFindsMissingEvents(t *testing.T) {
	finds(t, "the history of locks has ", "leader gone",
		edit{"server/history/history.go", "\tevery := Mode(h.mode.Load()) == Every\n", "\tif seq%64 == 0 {\n\t\treturn\n\t}\n\tevery := Mode(h.mode.Load()) == Every\n"})
}

// finds runs a build with a fault until a failure whose text contains the argument "says" is found. The fault may have other effects
// before that one.
func finds(t *testing.T, says, only string, broken ...edit) {
	s := testSuite(t, 1, only, broken...)
	s.busy = 4 * time.Second
	found := func() bool {
		return slices.ContainsFunc(s.failures, func(f string) bool { return strings.Contains(f, says) })
	}
	for n := 0; n < 16 && !found(); n++ {
		if err := s.run(time.Second, n); err != nil && !errors.Is(err, errUnhealed) {
			t.Fatal(err)
		}
	}
	if !found() {
		t.Errorf("the broken build was not found out: %v", s.failures)
	}
}
