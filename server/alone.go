package server

import (
	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// A node runs only one heavy command of each kind at a time, even if own_work.go would not delay it.

// findHeavy returns the commands that hundreds of clients must not run at once, because they would take the processors from the leader.
func findHeavy(handlers map[*store.Command]handler) map[*store.Command]cluster.OwnKind {
	found := map[*store.Command]cluster.OwnKind{}
	for cmd := range handlers {
		switch cmd.FullName() {
		case "command", "command|docs", "command|info", "command|list", "client|list", "client|kill", "slowlog|get", "lock.history", "lock.stats", "latency|histogram", "acl|log", "acl|cat",
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

// The method alone waits for other heavy commands of cmd's kind, and perhaps for the client's turn. If ok is true, the caller must call
// leave.
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

// paced calls the function work at the client's turn (Backend.Pace), and counts the time as paid. If ok is false, work was not called.
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

// digests waits until the node makes no other digest, because each may need memory for all names. Its results are those of
// session.alone.
func (s *session) digests() (leave func(), ok bool) {
	if s.script != nil {
		return func() {}, true
	}
	return s.srv.backend.Alone(s.client, cluster.OwnDigest)
}
