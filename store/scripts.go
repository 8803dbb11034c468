package store

import "github.com/tidwall/btree"

// maxEvalScripts bounds the scripts that only EVAL has brought in: a client
// that builds a new script for every call must not fill the memory of every
// node. Scripts from SCRIPT LOAD stay until SCRIPT FLUSH.
const maxEvalScripts = 500

// script is a cached script body.
type script struct {
	sha    string
	body   string
	pinned bool   // came by SCRIPT LOAD
	order  uint64 // of arrival
}

// scriptCache holds the scripts that EVALSHA finds. It is part of the
// replicated state, so that EVALSHA works on every node and after a failover.
type scriptCache struct {
	bySHA   *btree.BTreeG[script]
	evaled  *btree.BTreeG[script] // those not pinned, oldest first
	arrival uint64
	found   script // by the latest get: the same one is asked for again and again
}

func newScriptCache() scriptCache {
	return scriptCache{
		bySHA:  btree.NewBTreeGOptions(func(a, b script) bool { return a.sha < b.sha }, treeOptions),
		evaled: btree.NewBTreeGOptions(func(a, b script) bool { return a.order < b.order }, treeOptions),
	}
}

func (c *scriptCache) get(sha string) (s script, ok bool) {
	if sha == c.found.sha && sha != "" {
		return c.found, true
	}
	if s, ok = c.bySHA.Get(script{sha: sha}); ok {
		c.found = s
	}
	return s, ok
}

func (c *scriptCache) load(sha, body string, pinned bool) {
	if old, ok := c.get(sha); ok {
		if old.pinned || !pinned {
			return
		}
		c.evaled.Delete(old)
	}
	c.arrival++
	c.found = script{}
	s := script{sha: sha, body: body, pinned: pinned, order: c.arrival}
	c.bySHA.Set(s)
	if pinned {
		return
	}
	c.evaled.Set(s)
	if c.evaled.Len() > maxEvalScripts {
		oldest, _ := c.evaled.PopMin()
		c.bySHA.Delete(oldest)
	}
}

// Scripts returns the number of cached scripts.
func (s *Store) Scripts() int { return s.scripts.bySHA.Len() }
