package server

import (
	"bytes"
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// crc16Table is the table of CRC-16/XMODEM, the hash of Redis Cluster.
var crc16Table = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// hashedPerStep is how many bytes of key names a node hashes in the time of one step of store.Ctx.Work, hashedPerCheck in that of
// checkTakes.
const (
	hashedPerStep  = 32
	hashedPerCheck = 8
)

// slotOf returns the hash slot of a key. If there is text between the first { and the next }, only that
// text is hashed.
func slotOf(key []byte) int {
	if open := bytes.IndexByte(key, '{'); open >= 0 {
		if n := bytes.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	crc := uint16(0)
	for _, c := range key {
		crc = crc<<8 ^ crc16Table[byte(crc>>8)^c]
	}
	return int(crc % slots)
}

// redirect returns why a client of the Cluster listener may not run a command on this node; "" if it may.
//
// A follower redirects rather than forwards, because the client then remembers the leader's address. If the follower knows no address of
// the leader's Cluster listener, it forwards. Without a leader within reach, the command waits.
func (s *session) redirect(cmd *store.Command, args [][]byte) store.Error {
	if cmd.Name == "select" {
		if n, ok := redistext.ParseInt(args[1]); ok && n != 0 {
			return errSelectCluster
		}
	}
	if cmd == s.srv.execCmd {
		return s.redirectExec()
	}
	keys, ok := cmd.KeysOf(args)
	if !ok {
		return "" // the command itself replies with a better error
	}
	if len(keys) > 0 {
		s.checked += argumentBytes(keys) / hashedPerCheck
		slot := slotOf(keys[0])
		for _, key := range keys[1:] {
			if slotOf(key) != slot {
				return errCrossSlot
			}
		}
		if refusal := s.moved(cmd, slot); refusal != "" {
			return refusal
		}
	}
	return refusedInCluster(cmd, args)
}

// redirectExec is redirect for an EXEC: all keys must be in one slot, and the leader may have changed since the commands were queued.
func (s *session) redirectExec() store.Error {
	if s.multi == nil {
		return ""
	}
	slot := -1
	for i := range s.multi.commands {
		q := &s.multi.commands[i]
		keys, _ := q.cmd.KeysOf(q.args)
		s.checked += argumentBytes(keys) / hashedPerCheck
		for _, key := range keys {
			if n := slotOf(key); slot >= 0 && n != slot {
				return errCrossSlot
			} else {
				slot = n
			}
		}
	}
	for i := range s.multi.commands {
		if slot < 0 {
			break
		}
		if refusal := s.moved(s.multi.commands[i].cmd, slot); refusal != "" {
			return refusal
		}
	}
	return ""
}

// moved returns the MOVED error for a command whose keys are in a slot; "" if this node accepts the command.
func (s *session) moved(cmd *store.Command, slot int) store.Error {
	t := s.topology()
	switch {
	case t.Leader == t.Self || t.Leader == "":
		return ""
	case shardPubSub(cmd.Name):
		return "" // Redis replicas accept these commands, too: messages reach every node
	case s.replica && !cmd.Is(store.Write):
		return "" // the client has sent READONLY
	}
	leader := s.clusterEndpoint(t.Node(t.Leader))
	if !leader.known() || !s.srv.backend.Reaches() {
		return ""
	}
	return errf(movedTo+"%d %s", slot, leader.hostPort())
}

func shardPubSub(name string) bool {
	return name == "ssubscribe" || name == "sunsubscribe" || name == "spublish"
}

// refusedInCluster refuses, as Redis Cluster does, commands that name databases, and a SORT that reads other keys than its arguments.
func refusedInCluster(cmd *store.Command, args [][]byte) store.Error {
	switch cmd.Name {
	case "move":
		return errMoveCluster
	case "swapdb":
		return errSwapCluster
	case "copy":
		for i := 3; i+1 < len(args); i++ {
			if n, ok := redistext.ParseInt(args[i+1]); ok && n != 0 && strings.EqualFold(string(args[i]), "db") {
				return errCopyCluster
			}
		}
	case "sort", "sort_ro":
		return sortRefusal(args)
	}
	return ""
}

// sortRefusal refuses a SORT that makes names of further keys from patterns: BY with a *, or any GET.
func sortRefusal(args [][]byte) store.Error {
	for i := 2; i < len(args); i++ {
		switch strings.ToLower(string(args[i])) {
		case "limit":
			i += 2
		case "store":
			i++
		case "by":
			i++
			if i < len(args) && bytes.IndexByte(args[i], '*') >= 0 {
				return errSortBy
			}
		case "get":
			if i+1 < len(args) {
				return errSortGet
			}
		}
	}
	return ""
}
