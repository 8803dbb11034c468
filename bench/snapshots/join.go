package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/server/respclient"
)

// join measures while a node without data joins the cluster, becomes a voter and serves owners. The node is removed at the end.
func (p *plan) join(c *cluster) (err error) {
	var through []string
	for i := range c.nodes {
		through = append(through, p.peerAddr(i))
	}
	leader, err := c.leader()
	if err != nil {
		return err
	}
	// Now the beginning of the log is gone, as it is after hours of work.
	if err := c.outgrow(leader); err != nil {
		return err
	}
	if err := p.undisturbed(c); err != nil {
		return err
	}
	n := p.node(len(c.nodes), "--join", strings.Join(through, ","))
	var served, voted time.Duration
	during, err := c.measure(p.last, func(stop <-chan struct{}) (err error) {
		served, voted, err = n.arrive(stop)
		return err
	})
	c.nodes = append(c.nodes, n)
	if err != nil {
		return err // the caller kills the new node with the others
	}
	fmt.Printf("while a node joins:      %v (from its start until it serves: %v, until it votes: %v; snapshots received: %d)\n",
		during, served.Round(time.Millisecond), voted.Round(time.Millisecond), n.installs())
	if err := c.agree(); err != nil {
		return err
	}
	if err := leader.ask("LOCKSTEP", "REMOVE", n.id); err != nil {
		return err
	}
	n.kill()
	c.nodes = c.nodes[:len(c.nodes)-1]
	return errors.Join(os.RemoveAll(filepath.Join(p.dir, n.id)), os.Remove(n.log))
}

// arrive starts a node that joins, and renews leases through it until stop is closed. served and voted count from the start.
func (n *node) arrive(stop <-chan struct{}) (served, voted time.Duration, err error) {
	began := time.Now()
	if err := n.start(); err != nil {
		return 0, 0, err
	}
	if err := n.ready(); err != nil {
		return 0, 0, err
	}
	served = time.Since(began)
	var leases replies
	var work sync.WaitGroup
	left := make(chan struct{})
	for i := range renewers / 4 {
		work.Go(func() { leases.add(nil, renew(n.addr, renewers+i, left)) })
	}
	err = n.voter()
	voted = time.Since(began)
	<-stop
	close(left)
	work.Wait()
	return served, voted, errors.Join(append(leases.faults, err)...)
}

// voter waits until the node has its vote.
func (n *node) voter() error {
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if votes, err := n.metric("lockstep_is_voter"); err == nil && votes == 1 {
			return nil
		}
	}
	return fmt.Errorf("%s has no vote after %v; see %s", n.id, readyTimeout, n.log)
}

// agree compares the states of all nodes at the same entry. It asks again if an entry came in between.
func (c *cluster) agree() error {
	type answer struct {
		index, hash string
		err         error
	}
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		answers := make([]answer, len(c.nodes))
		var work sync.WaitGroup
		for i, n := range c.nodes {
			work.Go(func() { answers[i].index, answers[i].hash, answers[i].err = n.state() })
		}
		work.Wait()
		first := answers[0]
		if slices.ContainsFunc(answers, func(a answer) bool { return a.err != nil || a.index != first.index }) {
			continue
		}
		if at := slices.IndexFunc(answers, func(a answer) bool { return a.hash != first.hash }); at >= 0 {
			return fmt.Errorf("at entry %s the state of %s has the hash %s, that of %s %s", first.index, c.nodes[0].id, first.hash, c.nodes[at].id, answers[at].hash)
		}
		fmt.Printf("  the states of all %d nodes are equal: %s… at entry %s\n", len(c.nodes), first.hash[:16], first.index)
		return nil
	}
	return fmt.Errorf("the nodes did not come to the same entry in %v", readyTimeout)
}

// state returns the hash of a node's state, and the index of the last entry in that state.
func (n *node) state() (index, hash string, err error) {
	got, err := n.do("LOCKSTEP", "STATUS")
	if err != nil {
		return "", "", err
	}
	status, err := respclient.Pairs(got)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", n.id, err)
	}
	index, hash = status["state-index"], status["state-hash"]
	if index == "" || len(hash) < 16 {
		return "", "", fmt.Errorf("%s: status %v", n.id, got)
	}
	return index, hash, nil
}
