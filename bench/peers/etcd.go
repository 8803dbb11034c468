package peers

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"lockstep/bench/load"
	"lockstep/bench/wire"
)

// ensemble is how many servers a cluster of etcd or ZooKeeper has.
const ensemble = 3

// etcdQuota is room enough for the database in a long run, because etcd keeps its
// history.
const etcdQuota = "8589934592"

func startEtcd(s *System) error {
	clients, err := s.site.addrs(ensemble)
	if err != nil {
		return err
	}
	between, err := s.site.addrs(ensemble)
	if err != nil {
		return err
	}
	var members []string
	for i, addr := range between {
		members = append(members, fmt.Sprintf("n%d=http://%s", i+1, addr))
	}
	for i := range ensemble {
		name, client, peer := fmt.Sprint("n", i+1), "http://"+clients[i], "http://"+between[i]
		if err := s.launch(name, nil, "etcd", "--name", name, "--data-dir", "data", "--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(members, ","),
			"--initial-cluster-state", "new", "--quota-backend-bytes", etcdQuota, "--logger", "zap", "--log-level", "warn"); err != nil {
			return err
		}
	}
	s.lacks = map[string]string{"rlock": whyNoReentrant, "herd": whyNoHerd}
	s.everyNode = true
	s.open = func(owner, addr string) (load.Session, error) { return openEtcd(s, addr, owner) }
	// Locks end with their sessions, so there is none to delete.
	s.reset = func() ([]string, error) { return leaderFirst(clients, s.leadsEtcd) }
	return nil
}

func (s *System) leadsEtcd(addr string) (leads bool, err error) {
	c := wire.DialEtcd(addr, &s.Traffic)
	leads, s.Version, err = c.Leads()
	return leads, errors.Join(err, c.Close())
}

// etcdSession is a client whose locks share a lease, as those of etcd's own
// session do.
type etcdSession struct {
	*wire.Etcd
	owner  string
	lease  int64
	leases map[int64]bool // of the locks that have their own
	inside string         // the key of Enter
}

var (
	_ load.Session = (*etcdSession)(nil)
	_ load.Queued  = (*etcdSession)(nil)
)

func openEtcd(s *System, addr, owner string) (load.Session, error) {
	c := wire.DialEtcd(addr, &s.Traffic)
	id, err := c.Grant(0, int64(lease.Seconds()))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &etcdSession{Etcd: c, owner: owner, lease: id, leases: map[int64]bool{}}, nil
}

// Close ends the leases and with them the locks.
func (e *etcdSession) Close() (err error) {
	for id := range e.leases {
		err = errors.Join(err, e.Revoke(id))
	}
	err = errors.Join(err, e.Revoke(e.lease))
	return errors.Join(err, e.Etcd.Close())
}

// tally counts the keys for which do says yes.
func tally(keys []string, do func(key string) (bool, error)) (n int, err error) {
	for _, key := range keys {
		ok, err := do(key)
		if err != nil {
			return n, err
		}
		if ok {
			n++
		}
	}
	return n, nil
}

func (e *etcdSession) Lock(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) { return e.Create(key, e.owner, e.lease) })
}

// Hold gives each lock a lease, by whose number any session can renew it.
func (e *etcdSession) Hold(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) {
		id, err := e.Grant(leaseID(key), int64(holdLease.Seconds()))
		if err != nil {
			return false, err
		}
		e.leases[id] = true
		return e.Create(key, e.owner, id)
	})
}

// Drop ends the lease, which deletes the key.
func (e *etcdSession) Drop(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) {
		id := leaseID(key)
		delete(e.leases, id)
		return true, e.Revoke(id)
	})
}

func leaseID(key string) int64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return int64(h.Sum64()>>1) | 1
}

func (e *etcdSession) Unlock(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) { return e.DeleteIf(key, e.owner) })
}

func (e *etcdSession) Renew(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) { return true, e.KeepAlive(leaseID(key)) })
}

func (e *etcdSession) Held(keys []string) (int, error) { return tally(keys, e.Exists) }

func (e *etcdSession) Enter(key string) (err error) {
	e.inside, err = e.Etcd.Lock(key, e.lease)
	return err
}

func (e *etcdSession) Leave(string) error { return e.Etcd.Unlock(e.inside) }
