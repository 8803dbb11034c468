package server

import (
	"lockstep/cluster"
	"lockstep/store"
)

// A node answers heavy commands of several kinds itself (cluster.OwnKind). It runs only one command of each kind at a time.
// This holds even for the first command of a client, which the limits in own_work.go do not delay.

// findHeavy returns the heavy commands with their kinds. A command is heavy if its cost grows with the number of
// connections, subscriptions or log entries. It is also heavy if hundreds of such commands at once would take the processors
// from the leader. LOCKSTEP STATUS is not heavy, because clients that wait for the hash of the state share one hash
// (cluster.Node.StateHash). Commands that only wait, for the leader or for time, are not heavy either.
func findHeavy(handlers map[*store.Command]handler) map[*store.Command]cluster.OwnKind {
	found := map[*store.Command]cluster.OwnKind{}
	for cmd := range handlers {
		switch cmd.FullName() {
		case "command", "command|docs", "command|info", "command|list", "client|list", "client|kill", "slowlog|get", "latency|histogram", "acl|log", "acl|cat",
			"pubsub|channels", "pubsub|shardchannels", "pubsub|numsub", "pubsub|shardnumsub":
			found[cmd] = cluster.OwnList
		case "info", "config|get", "memory|stats", "memory|doctor":
			found[cmd] = cluster.OwnFacts
		case "acl|load", "acl|save":
			found[cmd] = cluster.OwnFile
		}
	}
	return found
}

// The method alone waits until the node runs no other heavy command of the same kind as cmd. If the node has worked for
// all its clients together for more than ownAtOnce within a second, it then also waits for the client's turn
// (Backend.Pace), because hundreds of clients may send one such command each. ACL LOAD and ACL SAVE wait for their turn
// later (paced). If cmd is not heavy, or if the session runs on an event loop, there is no wait. The result ok is false
// if the client has been cut off, or the node closes. Otherwise the caller must call the function leave after the
// command.
func (s *session) alone(cmd *store.Command) (leave func(), ok bool) {
	kind, heavy := s.srv.heavy[cmd]
	if !heavy || !s.mayWait() {
		return func() {}, true
	}
	s.out.flush() // earlier replies need not wait
	end, ok := s.srv.backend.Alone(s.client, kind)
	if !ok || kind == cluster.OwnFile || !s.srv.ownWork.isMuch() {
		return end, ok // doACLLoad and doACLSave call session.paced themselves, only for their work on the file
	}
	done, ok := s.srv.backend.Pace(s.client)
	if !ok {
		end()
		return nil, false
	}
	begun := s.srv.cfg.Clock()
	return func() {
		done()
		end()
		s.own.paid = s.srv.cfg.Clock().Sub(begun)
	}, true
}

// paced waits for the client's turn (Backend.Pace), and then calls the function work. It adds the time of both to own.paid,
// so that the client does not have to wait again because of that time (Backend.Rest). If the client has been cut off, or the
// node closes, paced returns false and does not call work.
func (s *session) paced(work func()) (ok bool) {
	begun := s.srv.cfg.Clock()
	defer func() { s.own.paid += s.srv.cfg.Clock().Sub(begun) }()
	done, ok := s.srv.backend.Pace(s.client)
	if ok {
		defer done()
		work()
	}
	return ok
}

// digests waits until the node makes no other digest (DEBUG DIGEST, DEBUG DIGEST-VALUE), because a digest of all keys
// needs memory for all their names. In a script it does not wait. Its results mean the same as those of session.alone.
func (s *session) digests() (leave func(), ok bool) {
	if s.script != nil {
		return func() {}, true
	}
	return s.srv.backend.Alone(s.client, cluster.OwnDigest)
}
