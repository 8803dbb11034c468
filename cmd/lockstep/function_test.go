package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// TestFunctionsOnEveryNode: functions that were loaded through a follower can be called through every node, also after a change of
// leader and a restart.
func TestFunctionsOnEveryNode(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	follower := others(list, leader)[0]
	const code = "#!lua name=lib\nredis.register_function('put', function(keys, args) return redis.call('incrby', keys[1], args[1]) end)\n" +
		"redis.register_function{function_name='get', callback=function(keys) return redis.call('get', keys[1]) end, flags={'no-writes'}}"
	if got, err := follower.Do("FUNCTION", "LOAD", code); got != "lib" {
		t.Fatal(got, err)
	}
	sum := int64(0)
	works := func(when string, nodes []*nodes.Node) {
		t.Helper()
		for _, n := range nodes {
			waitServing(t, n)
			sum += 7
			if got, err := n.Do("FCALL", "put", "1", "sum", "7"); got != sum {
				t.Errorf("%s, through %s: put = %v, %v, want %d", when, n.ID, got, err, sum)
			}
			if got, err := n.Do("FCALL_RO", "get", "1", "sum"); got != fmt.Sprint(sum) {
				t.Errorf("%s, through %s: get = %v, %v, want %d", when, n.ID, got, err, sum)
			}
			if got, err := n.Do("FUNCTION", "STATS"); !strings.Contains(fmt.Sprint(got), "libraries_count 1 functions_count 2") {
				t.Errorf("%s, through %s: FUNCTION STATS = %v, %v", when, n.ID, got, err)
			}
		}
	}
	works("at first", list)
	if got, err := follower.Do("FLUSHALL"); got != "OK" {
		t.Fatal(got, err)
	}
	sum = 0
	leader.Kill()
	works("without the leader", others(list, leader))
	leader.Run()
	leader.WaitReady()
	works("when it is back", list)
	for _, n := range list {
		n.Kill()
	}
	for _, n := range list {
		n.Run()
	}
	for _, n := range list {
		n.WaitReady()
	}
	works("after a restart of all", list)

	dump, err := follower.Do("FUNCTION", "DUMP")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := follower.Do("FUNCTION", "FLUSH"); got != "OK" {
		t.Fatal(got, err)
	}
	for _, n := range list {
		if _, err := n.Do("FCALL", "put", "1", "sum", "7"); !isError(err, "ERR Function not found") {
			t.Errorf("through %s after FUNCTION FLUSH: %v", n.ID, err)
		}
	}
	if got, err := follower.Do("FUNCTION", "RESTORE", dump.(string)); got != "OK" {
		t.Fatal(got, err)
	}
	works("restored", list)
}

// waitServing sends a command to the node again and again, until the node reaches a leader.
func waitServing(t *testing.T, n *nodes.Node) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, err := n.Do("GET", "sum")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not serve: %v", n.ID, err)
		}
	}
}

// TestEndlessFunction: the leader runs an endless function. FUNCTION KILL and FUNCTION STATS reach it from every node, and
// SCRIPT KILL does not end it.
func TestEndlessFunction(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	follower := others(list, leader)[0]
	if got, err := leader.Do("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('spin', function() while true do end end)"); got != "lib" {
		t.Fatal(got, err)
	}
	for _, n := range list {
		if got, err := n.Do("CONFIG", "SET", "busy-reply-threshold", "100"); got != "OK" {
			t.Fatal(got, err)
		}
	}
	for _, from := range []*nodes.Node{leader, follower} {
		answer := spin(t, from)
		waitBusy(t, leader.ID, leader.Do)
		waitBusy(t, follower.ID, follower.Do)
		for _, n := range []*nodes.Node{leader, follower} {
			if _, err := n.Do("GET", "k"); !isError(err, "BUSY ") || !strings.Contains(err.Error(), "FUNCTION KILL") {
				t.Errorf("GET through %s: %v", n.ID, err)
			}
			if got, err := n.Do("FUNCTION", "STATS"); !strings.Contains(fmt.Sprint(got), "name spin command [FCALL spin 0 argument]") {
				t.Errorf("FUNCTION STATS through %s: %v, %v", n.ID, got, err)
			}
			if _, err := n.Do("SCRIPT", "KILL"); !isError(err, "BUSY ") {
				t.Errorf("SCRIPT KILL through %s: %v", n.ID, err)
			}
		}
		if got, err := from.Do("FUNCTION", "KILL"); got != "OK" {
			t.Errorf("FUNCTION KILL: %v, %v", got, err)
		}
		if err := <-answer; !isError(err, "ERR Script killed by user") {
			t.Errorf("the caller got %v", err)
		}
	}
}

// spin calls the endless function, perhaps again after an election, until the server is busy. It returns the channel for the result.
func spin(t *testing.T, from *nodes.Node) <-chan error {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		c := from.Dial()
		if err := c.Send("FCALL", "spin", "0", "argument"); err != nil {
			t.Fatal(err)
		}
		answer := make(chan error, 1)
		go func() {
			_, err := c.Receive()
			answer <- err
		}()
		for ended := false; !ended; {
			if _, err := from.Do("GET", "k"); isError(err, "BUSY ") {
				return answer
			}
			select {
			case err := <-answer:
				t.Logf("the function ended by itself: %v", err)
				ended = true
			default:
			}
		}
	}
	t.Fatalf("no -BUSY through %s\n%s", from.ID, from.Log())
	return nil
}
