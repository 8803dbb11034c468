// Package roster says what the ids, the addresses, the terms and the configurations of a
// cluster may be, before anything that a peer sends reaches hashicorp/raft.
package roster

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/raft"
)

const (
	// MaxMembers is more than any cluster has.
	MaxMembers = 64
	// MaxText bounds the ids, addresses and other names that peers send.
	MaxText = 1024
	// Highest is more than any term or index that can be reached: one election or entry
	// a microsecond takes 140,000 years.
	Highest = 1 << 62
	// TermReach is how far a term may be beyond the own one. Terms grow by one with each
	// election, eight a second at most, so a node that was away for 17 years is reached.
	TermReach = 1 << 32
)

// CheckID fails if something cannot be the id of a node.
func CheckID(id string) error {
	if id == "" || len(id) > MaxText || !utf8.ValidString(id) || strings.ContainsAny(id, " ,=") || strings.ContainsFunc(id, unicode.IsControl) {
		return fmt.Errorf("%q is no id: use a name without spaces, commas or equal signs, such as n4", Clip(id))
	}
	return nil
}

// CheckAddress fails if something cannot be the address of a port.
func CheckAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	bad := err != nil || len(addr) > MaxText || !utf8.ValidString(host) ||
		strings.ContainsAny(host, " ,=/\"'") || strings.ContainsFunc(host, unicode.IsControl)
	if number, err := strconv.ParseUint(port, 10, 16); bad || err != nil || number == 0 {
		return fmt.Errorf("%q is no address: want host:port", Clip(addr))
	}
	return nil
}

// ReadConfiguration decodes what Raft has encoded, and fails on what Raft would never make: hashicorp/raft
// panics on a configuration that it cannot read, and goes on for good with one that has no voter.
func ReadConfiguration(data []byte) (conf raft.Configuration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("its configuration cannot be read")
		}
	}()
	conf = raft.DecodeConfiguration(data)
	ids, addrs, voters := map[raft.ServerID]bool{}, map[raft.ServerAddress]bool{}, 0
	for _, s := range conf.Servers {
		if err := errors.Join(CheckID(string(s.ID)), CheckAddress(string(s.Address))); err != nil {
			return conf, fmt.Errorf("its configuration: %w", err)
		}
		switch {
		case ids[s.ID] || addrs[s.Address]:
			return conf, fmt.Errorf("its configuration has %s or %s twice", s.ID, s.Address)
		case s.Suffrage == raft.Voter:
			voters++
		case s.Suffrage != raft.Nonvoter:
			return conf, fmt.Errorf("its configuration gives %s the suffrage %d", s.ID, s.Suffrage)
		}
		ids[s.ID], addrs[s.Address] = true, true
	}
	if voters == 0 || len(conf.Servers) > MaxMembers {
		return conf, fmt.Errorf("its configuration has %d members, of which %d vote", len(conf.Servers), voters)
	}
	return conf, nil
}

// Changes counts the members in which two configurations differ.
func Changes(a, b raft.Configuration) (n int) {
	for _, s := range a.Servers {
		if !slices.Contains(b.Servers, s) {
			n++
		}
	}
	for _, s := range b.Servers {
		same := func(o raft.Server) bool { return o.ID == s.ID }
		if !slices.ContainsFunc(a.Servers, same) {
			n++
		}
	}
	return n
}

// Clip shortens what a stranger says for a line of the log.
func Clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// PlausibleTerm reports whether a term can have been reached by a cluster that a node of
// the own term belongs to.
func PlausibleTerm(own, term uint64) bool {
	return term < Highest && (term <= own || term-own <= TermReach)
}
