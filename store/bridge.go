package store

import (
	"strconv"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// What a bridge reads and writes here (cmd/lockstep/internal/bridge). No client can call these commands.

// Of a longer string or a larger hash, BridgeLook says only whether it has changed.
const (
	bridgeString = 4096
	bridgeFields = 128
	bridgeBytes  = 65536 // of all fields together
)

// BridgeLook says what the keys after the command's name hold. For each: its type, its deadline and its time to live in ms (-1: none), its
// content, and 1 if it is a lock.
func BridgeLook(c *Ctx) Reply {
	list := make([]Reply, 0, len(c.Args)-1)
	for _, key := range c.Args[1:] {
		e, kind := c.lockAt(key)
		if e == nil {
			list = append(list, List(Str("none"), Int(0), Int(-1), emptyList, Zero))
			continue
		}
		at, leased := e.until()
		name, content := e.typ.String(), []Reply(nil)
		switch {
		case e.typ == TypeString && len(e.str) <= bridgeString:
			content = append(content, Str(e.str))
		case e.typ == TypeHash && e.Fields().Len() <= bridgeFields && smallHash(e.Fields()):
			e.Fields().Each(func(f Field) bool {
				content = append(content, Str(f.Name), Str(f.Value))
				return true
			})
		default:
			v, _ := c.Version(c.DB, key)
			name, content = "large", append(content, Str(strconv.FormatUint(v, 10)))
		}
		c.work(len(content))
		list = append(list, List(Str(name), Int(at), Int(c.ttlOf(at, leased)), List(content...), Flag(kind != "")))
	}
	return List(list...)
}

func smallHash(h *Hash) bool {
	bytes := 0
	h.Each(func(f Field) bool {
		bytes += len(f.Name) + len(f.Value)
		return bytes <= bridgeBytes
	})
	return bytes <= bridgeBytes
}

// BridgeAdopt gives a key that is no lock here another state. Its arguments are the key, string, hash or none, the time to live in ms
// (-1: none), 1 if it becomes a lock, and the content.
func BridgeAdopt(c *Ctx) Reply {
	if len(c.Args) < 5 {
		return syntaxError
	}
	key, kind, content := c.Args[1], c.Arg(2), c.Args[5:]
	ttl, ok := redistext.ParseInt(c.Args[3])
	if !ok {
		return notInteger
	}
	switch {
	case kind == "none", kind == "string" && len(content) == 1, kind == "hash" && len(content) > 0 && len(content)%2 == 0:
	default:
		return syntaxError
	}
	e, lock := c.lockAt(key)
	if lock != "" {
		return Zero
	}
	if e != nil {
		c.Delete(c.DB, key)
	}
	deadline := int64(0)
	if ttl >= 0 {
		deadline = c.Now().Lease + max(ttl, 1)
	}
	switch {
	case kind == "string" && string(c.Args[4]) == "1":
		c.SetLock(c.DB, key, string(content[0]), deadline)
	case kind == "string":
		c.SetString(c.DB, key, string(content[0]), deadline)
	case kind == "hash":
		for i := 0; i < len(content); i += 2 {
			c.HashSet(c.DB, key, string(content[i]), string(content[i+1]))
		}
		if deadline != 0 {
			c.SetDeadline(c.DB, key, deadline)
		}
	}
	return One
}
