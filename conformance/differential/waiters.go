package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// waiter has two connections that may stay blocked, one to each server.
type waiter struct {
	*pair
	ids    [2]string // ids of the two clients: lockstep's and Redis's
	parked bool
	step   step // the step in which the client waits
}

func (w *waiter) open(p *pair) error {
	w.pair = p
	ours, theirs, err := p.do("CLIENT", "ID")
	w.ids = [2]string{ours.Text, theirs.Text}
	return err
}

// patience bounds the wait for an event that must happen soon.
const patience = 20 * time.Second

// park sends a blocking command. It returns when each server has answered or has blocked the client.
func (p *players) park(w *waiter, s step) (*difference, error) {
	if err := w.send(s.args); err != nil {
		return nil, err
	}
	p.played.parked++
	w.parked, w.step = true, s
	ours, err := parked(w.ours, p.control.ours, w.ids[0])
	if err != nil {
		return nil, fmt.Errorf("lockstep, %q: %w", s.args, err)
	}
	theirs, err := parked(w.theirs, p.control.theirs, w.ids[1])
	if err != nil {
		return nil, fmt.Errorf("redis, %q: %w", s.args, err)
	}
	if ours != theirs {
		words := map[bool][]string{true: {"waits"}, false: {"has answered"}}
		return &difference{what: fmt.Sprintf("%q", s.args), ours: words[ours], theirs: words[theirs]}, nil
	}
	if ours {
		return nil, nil
	}
	return p.answer(w)
}

// parked returns true if a client is blocked, and false if it has been answered.
func parked(c, control *conn, id string) (bool, error) {
	seen := 0
	for end := time.Now().Add(patience); time.Now().Before(end); {
		v, err := control.do("CLIENT", "LIST", "ID", id)
		if err != nil {
			return false, err
		}
		if arrived, err := c.peek(); arrived || err != nil {
			return false, err
		}
		_, flags, _ := strings.Cut(v.Text, " flags=")
		if flags, _, _ = strings.Cut(flags, " "); !strings.Contains(flags, "b") {
			continue
		}
		if seen++; seen == sightings {
			return true, nil
		}
		// lockstep shows a client as blocked before the leader has its command. The leader answers DBSIZE only after it has that command.
		if _, err := control.do("DBSIZE"); err != nil {
			return false, err
		}
	}
	return false, errors.New("neither answered nor blocked")
}

// sightings is how often a client must be seen blocked, at intervals of 1 ms.
const sightings = 3

// peek reports whether a reply has begun to arrive.
func (c *conn) peek() (bool, error) {
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return false, err
	}
	_, err := c.r.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// releaseUnordered releases all waiters if they wait for several keys: after a SWAPDB, Redis serves keys in the order of a hash table.
func (p *players) releaseUnordered() (*difference, error) {
	keys := 0
	for i := range p.waiters {
		if w := &p.waiters[i]; w.parked {
			keys += w.keys()
		}
	}
	if keys < 2 {
		return nil, nil
	}
	for i := range p.waiters {
		if d, err := p.release(&p.waiters[i]); d != nil || err != nil {
			return d, err
		}
	}
	return nil, nil
}

// keys returns how many keys the waiter waits for.
func (w *waiter) keys() int {
	switch args := w.step.args; args[0] {
	case "BLMOVE", "BRPOPLPUSH":
		return 1
	case "BLMPOP", "BZMPOP":
		if n, err := strconv.Atoi(args[2]); err == nil {
			return n
		}
		return 2 // or more than 2
	default:
		return len(args) - 2 // all words but the name and the timeout
	}
}

// release ends a wait. It compares whether the two servers have served the client, and what the client got.
func (p *players) release(w *waiter) (*difference, error) {
	if !w.parked {
		return nil, nil
	}
	if err := errors.Join(p.control.ours.send([]string{"CLIENT", "UNBLOCK", w.ids[0]}), p.control.theirs.send([]string{"CLIENT", "UNBLOCK", w.ids[1]})); err != nil {
		return nil, err
	}
	ours, theirs, err := p.control.receive()
	if err != nil {
		return nil, err
	}
	d, err := p.answer(w)
	if d == nil && err == nil && ours.Text != theirs.Text {
		d = differ(fmt.Sprintf("CLIENT UNBLOCK of %q", w.step.args), ours, theirs)
	}
	return d, err
}

// answer compares the replies to the waiter's command.
func (p *players) answer(w *waiter) (*difference, error) {
	w.parked = false
	ours, theirs, err := w.receive()
	if err != nil {
		return nil, fmt.Errorf("%q: %w", w.step.args, err)
	}
	if same(ours, theirs, w.step.how) {
		return nil, nil
	}
	return differ(fmt.Sprintf("%q, which waited", w.step.args), ours, theirs), nil
}

// tally counts what has been played.
type tally struct{ commands, queued, scripts, blocking, parked int }

func (t *tally) count(s step) {
	t.commands++
	switch {
	case len(s.args) == 0:
	case strings.HasPrefix(s.args[0], "EVAL"), strings.HasPrefix(s.args[0], "FCALL"):
		t.scripts++
	case blocks(s.args[0]):
		t.blocking++
	}
}

func (t tally) String() string {
	share := func(n int) float64 { return 100 * float64(n) / float64(max(t.commands, 1)) }
	return fmt.Sprintf("%d commands (in MULTI %.1f %%, scripts and functions %.1f %%, blocking %.1f %%; %d times a client was left waiting)",
		t.commands, share(t.queued), share(t.scripts), share(t.blocking), t.parked)
}
