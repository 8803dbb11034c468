package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// settle waits until both servers have deleted the keys whose time to live ends now. It compares the notifications of the step and
// of these expirations.
func (p *players) settle(has traits) (*difference, error) {
	ours, theirs, err := p.events.heard(p.control)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; {
		time.Sleep(3 * time.Millisecond)
		n, err := p.ending()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			return nil, errors.New("a key outlives its time to live")
		}
	}
	// A SCAN lets Redis notice that the keys have expired.
	if err := p.everywhere("SCAN", "0", "COUNT", "1000000"); err != nil {
		return nil, err
	}
	moreOurs, moreTheirs, err := p.events.heard(p.control)
	if err != nil {
		return nil, err
	}
	for _, e := range moreOurs {
		if isExpired(e) { // all other notifications come from the questions that were asked meanwhile
			ours = append(ours, e)
		}
	}
	for _, e := range moreTheirs {
		if isExpired(e) {
			theirs = append(theirs, e)
		}
	}
	if has.clears {
		return nil, nil // a server that cleared the keys may or may not have noticed before that they had expired
	}
	return compareEvents(ours, theirs, has), nil
}

// soon is the largest time to live, in milliseconds, that settle waits for.
const soon = 1000

// ending counts the keys whose time to live ends soon.
func (p *players) ending() (n int, err error) {
	for _, c := range []*conn{p.control.ours, p.control.theirs} {
		for db := range databases {
			if _, err := c.do("SELECT", fmt.Sprint(db)); err != nil {
				return n, err
			}
			keys, err := c.do("KEYS", "*")
			if err != nil {
				return n, err
			}
			for _, k := range keys.Elems {
				ttl, err := c.do("PTTL", k.Text)
				if err != nil {
					return n, err
				}
				if left, err := strconv.Atoi(ttl.Text); err != nil || left >= 0 && left <= soon {
					n++
				}
			}
		}
	}
	return n, nil
}

// everywhere sends a command to each database.
func (p *players) everywhere(args ...string) error {
	for db := range databases {
		if _, _, err := p.control.do("SELECT", fmt.Sprint(db)); err != nil {
			return err
		}
		if _, _, err := p.control.do(args...); err != nil {
			return err
		}
	}
	return nil
}
