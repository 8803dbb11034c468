package peers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/wire"
)

// ensemble is the number of servers in a cluster of etcd or ZooKeeper.
const ensemble = 3

// etcdQuota is the maximum size of etcd's database in bytes. It is large, because etcd keeps its history through a long run.
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
	shared := &etcdClients{system: s, byAddr: map[string]*clientv3.Client{}}
	s.hangUp = shared.close
	s.open = shared.open
	// A lock ends with its session, so no lock is left to delete.
	s.reset = func() ([]string, error) { return leaderFirst(clients, shared.leads) }
	return nil
}

// etcdClients has one etcd client for each server. Its single connection is faster than one for each session.
type etcdClients struct {
	system   *System
	sessions atomic.Int64 // that are open

	mu     sync.Mutex
	byAddr map[string]*clientv3.Client
}

func (e *etcdClients) at(addr string) (*clientv3.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.byAddr[addr]
	if c != nil {
		return c, nil
	}
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		return wire.Dial(ctx, addr, &e.system.Traffic)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}, Logger: zap.NewNop()})
	if err == nil {
		e.byAddr[addr] = c
	}
	return c, err
}

func (e *etcdClients) close() (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.byAddr {
		err = errors.Join(err, c.Close())
	}
	return err
}

// leads reports whether the server at an address leads. It fails if that server knows of no leader.
func (e *etcdClients) leads(addr string) (bool, error) {
	c, err := e.at(addr)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	status, err := c.Status(ctx, addr)
	if err != nil {
		return false, err
	}
	e.system.Version = status.Version
	if status.Leader == 0 {
		return false, errors.New("etcd: no leader")
	}
	return status.Leader == status.Header.MemberId, nil
}

// etcdSession is a session whose locks share a lease, as those of etcd's own session do.
type etcdSession struct {
	*clientv3.Client
	shared *etcdClients
	ctx    context.Context // of all calls; Close cancels it
	cancel context.CancelFunc
	owner  string
	lease  clientv3.LeaseID
	leases map[clientv3.LeaseID]bool               // of the locks that have leases of their own
	alive  etcdserverpb.Lease_LeaseKeepAliveClient // nil until the first renewal
	queue  v3lockpb.LockClient
	inside []byte               // the key of Enter, if the lock service has made it
	keeper *concurrency.Session // for mutex; nil until the session first waits by the recipe
	mutex  *concurrency.Mutex   // which the session holds by the recipe; nil if it holds none
}

var (
	_ load.Session = (*etcdSession)(nil)
	_ load.Queued  = (*etcdSession)(nil)
)

func (e *etcdClients) open(owner, addr string) (load.Session, error) {
	c, err := e.at(addr)
	if err != nil {
		return nil, err
	}
	s := &etcdSession{Client: c, shared: e, owner: owner, leases: map[clientv3.LeaseID]bool{}, queue: v3lockpb.NewLockClient(c.ActiveConnection())}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	grant, err := c.Grant(s.ctx, int64(lease.Seconds()))
	if err != nil {
		s.cancel()
		return nil, err
	}
	s.lease = grant.ID
	e.sessions.Add(1)
	return s, nil
}

// Close ends the leases, which deletes the locks.
func (e *etcdSession) Close() (err error) {
	defer e.cancel()
	e.shared.sessions.Add(-1)
	if e.keeper != nil {
		e.keeper.Orphan() // Close ends the lease itself
	}
	e.leases[e.lease] = true
	for id := range e.leases {
		_, fault := e.Revoke(e.ctx, id)
		err = errors.Join(err, fault)
	}
	return err
}

// tally counts the keys for which the function do returns true.
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

// create puts a key if it does not exist.
func (e *etcdSession) create(key string, id clientv3.LeaseID) (bool, error) {
	return e.txn(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.OpPut(key, e.owner, clientv3.WithLease(id)))
}

// txn carries out the operation "then" if the comparison "holds" is true.
func (e *etcdSession) txn(holds clientv3.Cmp, then clientv3.Op) (bool, error) {
	answer, err := e.Txn(e.ctx).If(holds).Then(then).Commit()
	return err == nil && answer.Succeeded, err
}

func (e *etcdSession) Lock(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) { return e.create(key, e.lease) })
}

// Hold chooses each lease's number by the key, so that any session can renew the lease. The client's Grant would let the server
// choose.
func (e *etcdSession) Hold(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) {
		id := leaseID(key)
		ask := &etcdserverpb.LeaseGrantRequest{ID: int64(id), TTL: int64(holdLease.Seconds())}
		if _, err := etcdserverpb.NewLeaseClient(e.ActiveConnection()).LeaseGrant(e.ctx, ask); err != nil {
			return false, err
		}
		e.leases[id] = true
		return e.create(key, id)
	})
}

// Drop ends the lease, which deletes the key.
func (e *etcdSession) Drop(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) {
		id := leaseID(key)
		delete(e.leases, id)
		_, err := e.Revoke(e.ctx, id)
		return err == nil, err
	})
}

func leaseID(key string) clientv3.LeaseID {
	h := fnv.New64a()
	h.Write([]byte(key))
	return clientv3.LeaseID(h.Sum64()>>1) | 1
}

func (e *etcdSession) Unlock(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) {
		return e.txn(clientv3.Compare(clientv3.Value(key), "=", e.owner), clientv3.OpDelete(key))
	})
}

func (e *etcdSession) Renew(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) { return true, e.renew(leaseID(key)) })
}

// renew renews a lease. All renewals of a session go over one stream. The client's KeepAliveOnce would open a stream for each
// renewal.
func (e *etcdSession) renew(id clientv3.LeaseID) (err error) {
	if e.alive == nil {
		if e.alive, err = etcdserverpb.NewLeaseClient(e.ActiveConnection()).LeaseKeepAlive(e.ctx); err != nil {
			return err
		}
	}
	if err := e.alive.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return err
	}
	answer, err := e.alive.Recv()
	if err == nil && answer.TTL <= 0 {
		err = fmt.Errorf("etcd: the lease %d is gone", id)
	}
	return err
}

// Held reads linearizably, so it counts only locks that are held now.
func (e *etcdSession) Held(keys []string) (int, error) {
	return tally(keys, func(key string) (bool, error) {
		answer, err := e.Get(e.ctx, key, clientv3.WithCountOnly())
		return err == nil && answer.Count > 0, err
	})
}

// serviceMost is with how many sessions etcd's lock service is used. With some 700 it hangs for good: the service watches keys by
// channels inside the server that can block each other (https://github.com/etcd-io/etcd/issues/20716).
var serviceMost int64 = 200

// Enter waits for its turn in etcd's lock service. The service follows the recipe of etcd's clients, but inside the server, which
// takes fewer round trips. With too many sessions for the service, the client follows the recipe.
func (e *etcdSession) Enter(key string) error {
	ctx, cancel := context.WithTimeout(e.ctx, lease) // every client here releases its lock
	defer cancel()
	if e.shared.sessions.Load() > serviceMost {
		return e.enterByRecipe(ctx, key)
	}
	answer, err := e.queue.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(key), Lease: int64(e.lease)})
	if err == nil {
		e.inside = answer.Key
	}
	return err
}

func (e *etcdSession) enterByRecipe(ctx context.Context, key string) (err error) {
	if e.keeper == nil {
		if e.keeper, err = concurrency.NewSession(e.Client, concurrency.WithLease(e.lease)); err != nil {
			return err
		}
	}
	mutex := concurrency.NewMutex(e.keeper, key)
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	e.mutex = mutex
	return nil
}

func (e *etcdSession) Leave(string) error {
	if mutex := e.mutex; mutex != nil {
		e.mutex = nil
		return mutex.Unlock(e.ctx)
	}
	_, err := e.queue.Unlock(e.ctx, &v3lockpb.UnlockRequest{Key: e.inside})
	return err
}
