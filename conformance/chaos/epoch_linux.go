package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/conformance/chaos/history"
)

const (
	// readyLimit is how long a node may take to serve again after everything is healed, on a machine that also does other work.
	readyLimit = 60 * time.Second
	// equalLimit is how long the nodes' states may differ after the last write.
	equalLimit = 30 * time.Second
	// hungAfter is longer than any operation takes while nothing is broken.
	hungAfter = 5 * time.Second
	// quietTime is how long the clients go on after everything is healed. During this time no operation may fail.
	quietTime = 1500 * time.Millisecond
	// decideLimit bounds the search for an order that explains the history of one key.
	decideLimit = 2 * time.Minute
)

// epoch is a stretch of time with its own faults and its own keys. At its end everything is healed.
type epoch struct {
	s     *suite
	n     int
	keys  *keys
	rec   *history.Recorder
	stop  chan struct{}
	quiet atomic.Bool
	path  string

	mu       sync.Mutex
	failures []string
	faults   []string // a line for each beginning and end of a fault
	ops      map[string]int
	sent     []history.Publication
}

func (e *epoch) over() bool { return ended(e.stop) }

// fail records something that must not happen.
func (e *epoch) fail(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures = append(e.failures, fmt.Sprintf("epoch %d: ", e.n)+fmt.Sprintf(format, args...))
}

// note records what is done to the nodes.
func (e *epoch) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, fmt.Sprintf("%10.3fs  ", float64(e.s.now())/1e9)+fmt.Sprintf(format, args...))
}

// count counts an operation by its outcome.
func (e *epoch) count(op history.Op, known outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ops[[]string{"known", "refused", "unknown", "unsent", "wrong", "aborted"}[known]]++
	e.ops[string(op.Kind)]++
}

// runEpoch runs one epoch and records lockstep's failures in it. An error ends the whole run.
func (s *suite) runEpoch(n int) (*epoch, error) {
	e := &epoch{s: s, n: n, keys: newKeys(n), stop: make(chan struct{}), ops: map[string]int{},
		path: filepath.Join(s.dir, fmt.Sprintf("epoch-%04d.jsonl", n))}
	var err error
	if e.rec, err = history.NewRecorder(e.path); err != nil {
		return nil, err
	}
	var users, hearing sync.WaitGroup
	for _, w := range e.workers() {
		users.Go(w.run)
	}
	chance := rand.New(rand.NewPCG(s.seed, uint64(n)))
	listeners := e.listeners(chance)
	for _, l := range listeners {
		hearing.Go(l.run)
	}
	e.disturb(chance)
	err = e.heal()
	if err == nil {
		e.quiet.Store(true)
		e.note("quiet")
		time.Sleep(quietTime) // the clients need real time
	}
	close(e.stop)
	users.Wait()
	if err == nil {
		if err := s.f.waitEqual(equalLimit); err != nil {
			e.fail("%v", err)
		}
		e.listenUp(listeners)
	}
	for _, l := range listeners {
		l.end()
	}
	hearing.Wait()
	e.checkMessages(listeners)
	for _, n := range s.f.nodes {
		for _, how := range n.crashed() {
			e.fail("%s", how)
		}
	}
	return e, err
}

// workers returns four clients for each mode at each node.
func (e *epoch) workers() (list []*worker) {
	for range 4 {
		for _, m := range []mode{plainMode, sentinelMode, clusterMode} {
			for home := range e.s.f.nodes {
				id := len(list)
				rng := rand.New(rand.NewPCG(e.s.seed, uint64(e.n)<<16|uint64(id+1)))
				list = append(list, &worker{id: id, e: e, rng: rng, c: &client{f: e.s.f, mode: m, home: home, rng: rng}})
			}
		}
	}
	return list
}

// heal repairs everything and waits until every node serves.
func (e *epoch) heal() error {
	e.note("heal")
	e.s.f.net.Heal()
	e.s.f.mu.Lock()
	leaving := e.s.f.leaving
	e.s.f.mu.Unlock()
	for _, n := range leaving {
		// A paused node may be needed for the majority that removes it.
		n.resume()
		if err := n.start(); err != nil {
			return err
		}
	}
	for _, n := range e.s.f.nodes {
		n.resume()
		if err := n.mendDisk(); err != nil {
			return err
		}
		if err := n.setClock(0); err != nil {
			return err
		}
		if err := n.start(); err != nil {
			return err
		}
	}
	if err := e.s.f.waitReady(readyLimit); err != nil {
		e.fail("%v", err)
		return errUnhealed
	}
	return e.sendOff()
}

// judge checks what the clients saw. After a failure it keeps the files that help to understand the failure.
func (e *epoch) judge() error {
	ops, err := e.rec.Close()
	if err != nil {
		return err
	}
	e.s.audits.add(ops)
	found, err := history.Check(ops, decideLimit)
	if err != nil {
		return err
	}
	for _, v := range found {
		e.fail("%v", v)
	}
	if len(e.failures) == 0 {
		return os.Remove(e.path)
	}
	dir := filepath.Join(e.s.dir, fmt.Sprintf("failed-epoch-%04d", e.n))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, v := range found {
		if err := v.Save(dir); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("seed %d, epoch %d\n", e.s.seed, e.n)
	for _, list := range [][]string{e.failures, e.faults} {
		for _, line := range list {
			text += line + "\n"
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "faults.txt"), []byte(text), 0o644); err != nil {
		return err
	}
	for _, n := range e.s.f.nodes {
		// This copies the log as it is now: the node goes on writing to it.
		log, err := os.ReadFile(n.logPath())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, n.id+".log"), log, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return os.Rename(e.path, filepath.Join(dir, "all.jsonl"))
}
