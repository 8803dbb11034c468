package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/lockstep-io/lockstep/conformance/chaos/history"
)

// audits compares the history of locks that the nodes have written with what the clients saw.
type audits struct {
	mu   sync.Mutex
	seen map[held]*tally
}

// held is a lock and its owner. The owners of plain locks are unique, those of reentrant ones come again and again.
type held struct{ key, owner string }

// lockEvent is a line of the nodes' files, as far as it is compared.
type lockEvent struct {
	Seq               uint64
	Event, Key, Owner string
	Token             uint64
}

// tally counts what clients have done with a lock. What is known is a lower bound, because replies get lost.
type tally struct {
	grants, ends                  int // with a reply
	unknownGrants, unknownEnds    int
	token                         uint64 // that the owner of a plain lock was told; 0: none
	granted, released, tokenOther int    // by the nodes' events
}

// add counts the operations of an epoch.
func (a *audits) add(ops []history.Op) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[held]*tally{}
	}
	for i := range ops {
		op := &ops[i]
		if op.Kind != history.Lock && op.Kind != history.Hash {
			continue
		}
		switch op.Call {
		case "acquire", "fenced", "grant", "lock":
			a.grant(op)
		case "release", "unlock":
			t := a.of(held{op.Key, op.Owner})
			switch {
			case op.Unknown:
				t.unknownEnds++
			case op.Call == "release" && op.Result == "1", op.Call == "unlock" && op.Result != "-1":
				t.ends++
			}
		}
	}
}

func (a *audits) grant(op *history.Op) {
	t := a.of(held{op.Key, op.Owner})
	switch {
	case op.Unknown:
		t.unknownGrants++
	case op.Result != "0":
		t.grants++
		if op.Call == "grant" {
			t.token, _ = strconv.ParseUint(op.Result, 10, 64) // the check of the epoch reports what is no number
		}
	}
}

func (a *audits) of(h held) *tally {
	t := a.seen[h]
	if t == nil {
		t = &tally{}
		a.seen[h] = t
	}
	return t
}

func (n *node) auditPath() string { return filepath.Join(n.dir, "audit") }

// checkAudits stops the nodes, lets `lockstep audit` check their files, and compares the events with what the clients saw.
func (s *suite) checkAudits() error {
	var dirs []string
	for _, n := range s.f.nodes {
		if err := n.stop(); err != nil {
			return err
		}
		dirs = append(dirs, n.auditPath())
	}
	cmd := exec.Command(s.f.binary, append([]string{"audit", "--check", "--output", "json"}, dirs...)...)
	said, err := cmd.Output()
	fmt.Fprintf(s.out, "audit: %s", said)
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		s.fail("lockstep audit: %v", err)
	} else if err != nil {
		return err
	}
	var sum struct{ Gaps int }
	if err := json.Unmarshal(said, &sum); err != nil {
		return err
	}
	events, err := allEvents(dirs)
	if err != nil {
		return err
	}
	s.audits.compare(events, sum.Gaps == 0, s.fail)
	return nil
}

func (s *suite) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	s.failures = append(s.failures, text)
	fmt.Fprintln(s.out, "FAILED", text)
}

// allEvents returns the events of all nodes: of each write set those of the node that has most.
func allEvents(dirs []string) (events []lockEvent, err error) {
	best := map[uint64][]lockEvent{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "locks-*.jsonl"))
		if err != nil {
			return nil, err
		}
		mine := map[uint64][]lockEvent{}
		for _, path := range slices.Sorted(slices.Values(files)) {
			in, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			lines := bufio.NewScanner(in)
			for lines.Scan() {
				var e lockEvent
				if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
					return nil, errors.Join(fmt.Errorf("%s: %w", path, err), in.Close())
				}
				if e.Event != "gap" { // it has the number of the last write set that was missed
					mine[e.Seq] = append(mine[e.Seq], e)
				}
			}
			if err := errors.Join(lines.Err(), in.Close()); err != nil {
				return nil, err
			}
		}
		for seq, list := range mine {
			if len(list) > len(best[seq]) {
				best[seq] = list
			}
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(best)) {
		events = append(events, best[seq]...)
	}
	return events, nil
}

// compare reports each lock that the nodes and the clients saw differently. all says that no events are missing on all nodes at once.
func (a *audits) compare(events []lockEvent, all bool, fail func(format string, args ...any)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.seen {
		t.granted, t.released, t.tokenOther = 0, 0, 0 // the events of an earlier comparison are among these
	}
	for _, e := range events {
		t := a.seen[held{e.Key, e.Owner}]
		switch {
		case e.Owner == "" || e.Event == "renewed":
		case t == nil:
			fail("the history of locks says that %s was %s for %s, of which no client knows", e.Key, e.Event, e.Owner)
		case e.Event == "granted":
			t.granted++
			if t.token != 0 && t.token != e.Token {
				t.tokenOther++
			}
		case e.Event == "released":
			t.released++
		}
	}
	for h, t := range a.seen {
		if all && t.granted < t.grants || t.granted > t.grants+t.unknownGrants {
			fail("the history of locks has %d grants of %s to %s, and the clients saw %d and %d without a reply", t.granted, h.key, h.owner, t.grants, t.unknownGrants)
		}
		if all && t.released < t.ends || t.released > t.ends+t.unknownEnds {
			fail("the history of locks has %d releases of %s by %s, and the clients saw %d and %d without a reply", t.released, h.key, h.owner, t.ends, t.unknownEnds)
		}
		if t.tokenOther > 0 {
			fail("the history of locks has another token of %s for %s than its owner was told", h.key, h.owner)
		}
	}
}
