// Package roster checks ids, addresses, terms and configurations that a peer sends, before
// they reach hashicorp/raft.
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
	// MaxMembers is the largest number of members that a configuration may have.
	MaxMembers = 64
	// MaxText bounds the ids, addresses and other names that peers send.
	MaxText = 1024
	// Highest is above any term or index that a cluster can reach, even with one more in each microsecond for 140,000 years.
	Highest = 1 << 62
	// TermReach is how far a peer's term may be above this node's: at eight elections a second, the terms of 17 years.
	TermReach = 1 << 32
)

// CheckID fails if id cannot be the id of a node.
func CheckID(id string) error {
	if id == "" || len(id) > MaxText || !utf8.ValidString(id) || strings.ContainsAny(id, " ,=") || strings.ContainsFunc(id, unicode.IsControl) {
		return fmt.Errorf("%q is no id: use a name without spaces, commas or equal signs, such as n4", Clip(id))
	}
	return nil
}

// CheckAddress fails if addr is not of the form host:port.
func CheckAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	bad := err != nil || len(addr) > MaxText || !utf8.ValidString(host) ||
		strings.ContainsAny(host, " ,=/\"'") || strings.ContainsFunc(host, unicode.IsControl)
	if number, err := strconv.ParseUint(port, 10, 16); bad || err != nil || number == 0 {
		return fmt.Errorf("%q is no address: want host:port", Clip(addr))
	}
	return nil
}

// ReachesNobody reports whether an address, which others are to dial, has a host that stands for all addresses of the machine.
func ReachesNobody(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// ReadConfiguration decodes a configuration, and fails on one that no node of lockstep makes (Check).
func ReadConfiguration(data []byte) (raft.Configuration, error) {
	conf, err := DecodeConfiguration(data)
	if err != nil {
		return conf, err
	}
	return conf, Check(conf)
}

// DecodeConfiguration decodes a configuration. hashicorp/raft panics on bytes that it cannot decode.
func DecodeConfiguration(data []byte) (conf raft.Configuration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("its configuration cannot be read")
		}
	}()
	return raft.DecodeConfiguration(data), nil
}

// Check fails on a configuration that a member would refuse if a peer sent it (ReadConfiguration).
func Check(conf raft.Configuration) error {
	ids, addrs, voters := map[raft.ServerID]bool{}, map[raft.ServerAddress]bool{}, 0
	for _, s := range conf.Servers {
		if err := errors.Join(CheckID(string(s.ID)), CheckAddress(string(s.Address))); err != nil {
			return fmt.Errorf("its configuration: %w", err)
		}
		switch {
		case ids[s.ID] || addrs[s.Address]:
			return fmt.Errorf("its configuration has %s or %s twice", s.ID, s.Address)
		case s.Suffrage == raft.Voter:
			voters++
		case s.Suffrage != raft.Nonvoter:
			return fmt.Errorf("its configuration gives %s the suffrage %d", s.ID, s.Suffrage)
		}
		ids[s.ID], addrs[s.Address] = true, true
	}
	if voters == 0 || len(conf.Servers) > MaxMembers {
		return fmt.Errorf("its configuration has %d members, of which %d vote", len(conf.Servers), voters)
	}
	return nil
}

// Changes returns the number of members in which two configurations differ.
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

// Clip shortens text, which an unknown caller may have sent, to fit a log line.
func Clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// PlausibleTerm reports whether a peer can be in the given term if the parameter own is the term of this node.
func PlausibleTerm(own, term uint64) bool {
	return term < Highest && (term <= own || term-own <= TermReach)
}
