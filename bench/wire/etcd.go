package wire

import "errors"

// Etcd is a client of etcd's v3 API on a connection of its own.
type Etcd struct {
	grpc  *grpc
	alive *stream // of LeaseKeepAlive; nil until the first renewal
}

// DialEtcd makes a client; the connection is made with the first call.
func DialEtcd(addr string, traffic *Traffic) *Etcd { return &Etcd{grpc: newGRPC(addr, traffic)} }

// Close ends the connection.
func (e *Etcd) Close() (err error) {
	if e.alive != nil {
		err = e.alive.close()
	}
	e.grpc.close()
	return err
}

// Numbers of fields, from rpc.proto of etcd 3.4.
const (
	compareTarget         = 2
	compareKey            = 3
	compareCreateRevision = 5
	compareValue          = 7
	targetCreate          = 1
	targetValue           = 3
	txnCompare            = 1
	txnSuccess            = 2
	txnSucceeded          = 2
	opPut                 = 2
	opDelete              = 3
)

// Grant makes a lease; id 0 lets the server choose one.
func (e *Etcd) Grant(id, seconds int64) (int64, error) {
	answer, err := e.grpc.call("etcdserverpb.Lease/LeaseGrant", putInt(putInt(blank(), 1, seconds), 2, id))
	if err != nil {
		return 0, err
	}
	return intField(answer, 2)
}

// Revoke ends a lease and deletes its keys.
func (e *Etcd) Revoke(id int64) error {
	_, err := e.grpc.call("etcdserverpb.Lease/LeaseRevoke", putInt(blank(), 1, id))
	return err
}

var errLeaseGone = errors.New("etcd: the lease is gone")

// KeepAlive renews a lease.
func (e *Etcd) KeepAlive(id int64) (err error) {
	message := putInt(blank(), 1, id)
	if e.alive == nil {
		e.alive, err = e.grpc.open("etcdserverpb.Lease/LeaseKeepAlive", message)
	} else {
		err = e.alive.send(message)
	}
	if err != nil {
		return err
	}
	answer, err := e.alive.receive()
	if err != nil {
		return err
	}
	if ttl, err := intField(answer, 3); err != nil || ttl <= 0 {
		return errors.Join(errLeaseGone, err)
	}
	return nil
}

// Create puts a key if there is none.
func (e *Etcd) Create(key, value string, lease int64) (bool, error) {
	// Revision 0 is the default, which proto3 leaves out. As a member of a oneof
	// it must be there all the same.
	compare := append(putBytes(putInt(nil, compareTarget, targetCreate), compareKey, key), compareCreateRevision<<3|wireVarint, 0)
	put := putInt(putBytes(putBytes(nil, 1, key), 2, value), 3, lease)
	return e.txn(compare, putMessage(nil, opPut, put))
}

// DeleteIf deletes a key that has this value.
func (e *Etcd) DeleteIf(key, value string) (bool, error) {
	compare := putBytes(putBytes(putInt(nil, compareTarget, targetValue), compareKey, key), compareValue, value)
	return e.txn(compare, putMessage(nil, opDelete, putBytes(nil, 1, key)))
}

// txn carries out then if compare holds.
func (e *Etcd) txn(compare, then []byte) (bool, error) {
	answer, err := e.grpc.call("etcdserverpb.KV/Txn", putMessage(putMessage(blank(), txnCompare, compare), txnSuccess, then))
	if err != nil {
		return false, err
	}
	ok, err := intField(answer, txnSucceeded)
	return ok == 1, err
}

// Exists is a linearizable read.
func (e *Etcd) Exists(key string) (bool, error) {
	answer, err := e.grpc.call("etcdserverpb.KV/Range", putBytes(blank(), 1, key))
	if err != nil {
		return false, err
	}
	count, err := intField(answer, 4)
	return count > 0, err
}

// Lock waits for its turn in etcd's own lock service, which follows etcd's lock
// recipe inside the server, and returns the key to give back.
func (e *Etcd) Lock(name string, lease int64) (key string, err error) {
	answer, err := e.grpc.call("v3lockpb.Lock/Lock", putInt(putBytes(blank(), 1, name), 2, lease))
	if err != nil {
		return "", err
	}
	b, err := bytesField(answer, 2)
	return string(b), err
}

// Unlock gives back what Lock has returned.
func (e *Etcd) Unlock(key string) error {
	_, err := e.grpc.call("v3lockpb.Lock/Unlock", putBytes(blank(), 1, key))
	return err
}

// Leads reports whether this member leads, and its version. It fails if the
// member knows of no leader.
func (e *Etcd) Leads() (leads bool, version string, err error) {
	answer, err := e.grpc.call("etcdserverpb.Maintenance/Status", blank())
	if err != nil {
		return false, "", err
	}
	header, err := bytesField(answer, 1)
	if err != nil {
		return false, "", err
	}
	me, err := intField(header, 2)
	if err != nil {
		return false, "", err
	}
	leader, err := intField(answer, 4)
	if err != nil {
		return false, "", err
	}
	if leader == 0 {
		return false, "", errors.New("etcd: no leader")
	}
	v, err := bytesField(answer, 2)
	return me == leader, string(v), err
}
