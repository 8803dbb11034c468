package server

import (
	"bytes"
	"crypto/sha1" // Redis's digests are made of it
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// digest is Redis's hash of one value or of all data: two servers with the same data have the same
// digest.
type digest [sha1.Size]byte

// xor adds data to the digest; the order of such additions does not matter.
func (d *digest) xor(b []byte) {
	sum := sha1.Sum(b)
	for i := range d {
		d[i] ^= sum[i]
	}
}

// mix adds data to the digest; the order of additions matters.
func (d *digest) mix(b []byte) {
	d.xor(b)
	*d = sha1.Sum(d[:])
}

func (d *digest) mixNumber(n int) { d.mix(binary.BigEndian.AppendUint32(nil, uint32(n))) }

func (d *digest) String() string { return hex.EncodeToString(d[:]) }

// digestTypes are the types in the order of their numbers in Redis, each with the command that reads a
// value.
var digestTypes = []struct {
	name string
	read []string // the key goes after the first word
}{
	{"string", []string{"get"}},
	{"list", []string{"lrange", "0", "-1"}},
	{"set", []string{"smembers"}},
	{"zset", []string{"zrange", "0", "-1", "withscores"}},
	{"hash", []string{"hgetall"}},
}

// plain runs a command as the system user, in RESP2 and in the given database.
func (s *session) plain(db int, words ...string) store.Reply {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	cmd, _ := s.srv.table.Resolve(args)
	if s.script != nil {
		// The leader is running a script that has called DEBUG, so the command runs as part of that script, not in a submission.
		c := *s.script
		c.Cmd, c.Args, c.DB, c.RESP = cmd, args, db, 2
		return cmd.Run(&c)
	}
	return s.askLeader(cluster.Call{Cmd: cmd, Args: args, DB: db, RESP: 2, User: store.SystemUser})
}

// mixValue adds the value of a key to the digest, or returns the error of a failed read.
func (s *session) mixValue(d *digest, db int, key string) (failure store.Reply, failed bool) {
	typ := s.plain(db, "type", key)
	if typ.IsError() {
		return typ, true
	}
	for i, t := range digestTypes {
		if t.name != typ.Str {
			continue
		}
		d.mixNumber(i)
		r, ttl := s.plain(db, append([]string{t.read[0], key}, t.read[1:]...)...), s.plain(db, "pttl", key)
		switch {
		case r.IsError():
			return r, true
		case ttl.IsError():
			return ttl, true
		}
		switch t.name {
		case "string":
			d.mix([]byte(r.Str))
		case "list":
			for _, e := range r.Elems {
				d.mix([]byte(e.Str))
			}
		case "set":
			for _, e := range r.Elems {
				d.xor([]byte(e.Str))
			}
		default:
			for i := 0; i+1 < len(r.Elems); i += 2 {
				var pair digest
				pair.mix([]byte(r.Elems[i].Str))
				pair.mix(digestText(t.name, r.Elems[i+1]))
				d.xor(pair[:])
			}
		}
		if ttl.Int >= 0 {
			d.xor([]byte("!!expire!!"))
		}
	}
	return store.Reply{}, false
}

// digestText returns the bytes that Redis hashes for the value of a hash field, or for a score, which Redis
// prints with %.17g.
func digestText(typ string, r store.Reply) []byte {
	if typ == "hash" {
		return []byte(r.Str)
	}
	score := r.Float()
	if r.Kind == store.Bulk {
		score, _ = redistext.ParseFloat([]byte(r.Str))
	}
	return bytes.TrimPrefix(bytes.ToLower(strconv.AppendFloat(nil, score, 'g', 17, 64)), []byte("+")) // Go prints "+Inf"
}

func doDebugDigestValue(s *session, args [][]byte) store.Reply {
	leave, ok := s.digests()
	if !ok {
		return store.Err(errLeft)
	}
	defer leave()
	r := store.List()
	for _, key := range args[2:] {
		var d digest
		if failure, failed := s.mixValue(&d, int(s.db.Load()), string(key)); failed {
			return failure
		}
		r.Elems = append(r.Elems, store.Status(d.String()))
	}
	return r
}

func doDebugDigest(s *session, _ [][]byte) store.Reply {
	leave, ok := s.digests()
	if !ok {
		return store.Err(errLeft)
	}
	defer leave()
	var all digest
	for db := range store.Databases {
		keys := s.plain(db, "keys", "*")
		switch {
		case keys.IsError():
			return keys
		case len(keys.Elems) == 0:
			continue
		}
		all.mixNumber(db)
		for _, key := range keys.Elems {
			var d digest
			d.mix([]byte(key.Str))
			if failure, failed := s.mixValue(&d, db, key.Str); failed {
				return failure
			}
			all.xor(d[:])
		}
	}
	return store.Status(all.String())
}
