package peers

import (
	"errors"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/wire"
)

// redlockSession is a client of several independent servers, of which a majority decides. It asks all at the same time, as
// redsync does.
type redlockSession struct{ servers []*respSession }

var _ load.Session = (*redlockSession)(nil)

func openRedlock(s *System, addrs []string, owner string) (load.Session, error) {
	r := &redlockSession{}
	for _, addr := range addrs {
		c, err := s.dialResp(addr)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.servers = append(r.servers, &respSession{Resp: c, system: s, addr: addr, owner: owner})
	}
	return r, nil
}

func (r *redlockSession) Close() (err error) {
	for _, s := range r.servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

// vote asks all servers about each key. It counts the keys for which the majority says yes.
func (r *redlockSession) vote(keys []string, ask func(s *respSession, key string), yes func(wire.Reply) bool) (int, error) {
	sum := 0
	for _, key := range keys {
		for _, s := range r.servers {
			ask(s, key)
			if err := s.Flush(); err != nil {
				return sum, err
			}
		}
		votes := 0
		for _, s := range r.servers {
			reply, err := s.Reply()
			if err != nil {
				return sum, err
			}
			if yes(reply) {
				votes++
			}
		}
		if votes > len(r.servers)/2 {
			sum++
		}
	}
	return sum, nil
}

func isStatus(reply wire.Reply) bool { return reply.Kind == '+' }
func isOne(reply wire.Reply) bool    { return reply.Int == 1 }

func (r *redlockSession) Lock(keys []string) (int, error) {
	return r.vote(keys, func(s *respSession, key string) { s.Command("SET", key, s.owner, "NX", "PX", leaseMillis) }, isStatus)
}

func (r *redlockSession) Hold(keys []string) (int, error) {
	return r.vote(keys, func(s *respSession, key string) { s.Command("SET", key, s.owner, "NX", "PX", holdLeaseMillis) }, isStatus)
}

func (r *redlockSession) Unlock(keys []string) (int, error) {
	return r.vote(keys, func(s *respSession, key string) { s.Command("EVALSHA", unlockScript.sha, "1", key, s.owner) }, isOne)
}

func (r *redlockSession) Drop(keys []string) (int, error) { return r.Unlock(keys) }

func (r *redlockSession) Renew(keys []string) (int, error) {
	return r.vote(keys, func(s *respSession, key string) {
		s.Command("EVALSHA", renewScript.sha, "1", key, s.owner, holdLeaseMillis)
	}, isOne)
}

func (r *redlockSession) Held(keys []string) (int, error) {
	return r.vote(keys, func(s *respSession, key string) { s.Command("GET", key) }, func(reply wire.Reply) bool { return !reply.Null })
}
