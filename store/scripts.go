package store

// maxEvalScripts limits the cached scripts of EVAL, and those of SCRIPT LOAD without room (HasRoomForScript). SCRIPT LOAD pins the others.
const maxEvalScripts = 500

// maxEvalBytes limits the total script.size of the scripts that maxEvalScripts counts. The latest one always stays.
const maxEvalBytes = 8 << 20

// script is a cached script body.
type script struct {
	sha    string
	body   string
	pinned bool   // loaded by SCRIPT LOAD while there was room
	order  uint64 // number of the script in the order in which scripts were cached (scriptCache.arrival)
}

// scriptCache holds the scripts for EVALSHA. It is part of the replicated state, so EVALSHA works
// on every node and after a failover.
type scriptCache struct {
	bySHA   *tree[script]
	evaled  *tree[script] // scripts that are not pinned, oldest first
	arrival uint64
	found   script // result of the last get: most calls use the same script again

	pinnedSize int64 // bytes of the pinned scripts, part of the data size
	evaledSize int64
}

func newScriptCache() scriptCache {
	return scriptCache{
		bySHA:  newTree(func(a, b script) bool { return a.sha < b.sha }),
		evaled: newTree(func(a, b script) bool { return a.order < b.order }),
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
		c.count(old, -1)
	}
	c.arrival++
	c.found = script{}
	s := script{sha: sha, body: body, pinned: pinned, order: c.arrival}
	c.bySHA.Set(s)
	c.count(s, 1)
	if pinned {
		return
	}
	c.evaled.Set(s)
	for c.evaled.Len() > maxEvalScripts || c.evaledSize > maxEvalBytes && c.evaled.Len() > 1 {
		oldest, _ := c.evaled.PopMin()
		c.bySHA.Delete(oldest)
		c.count(oldest, -1)
	}
}

// count adds the size of a script to the sum of the pinned or of the other scripts, or subtracts it: sign is 1 or -1.
func (c *scriptCache) count(s script, sign int64) {
	if s.pinned {
		c.pinnedSize += sign * s.size()
	} else {
		c.evaledSize += sign * s.size()
	}
}

// size returns the estimated memory of a script. The body counts twice, because a node holds the compiled form, too.
func (s script) size() int64 { return entrySize + allocated(len(s.sha)) + 2*allocated(len(s.body)) }

// Scripts returns the number of cached scripts.
func (s *Store) Scripts() int { return s.scripts.bySHA.Len() }

// ScriptSize returns the estimated memory of the cached scripts, including their compiled forms.
func (s *Store) ScriptSize() int64 { return s.scripts.pinnedSize + s.scripts.evaledSize }

// Script returns the body of a cached script by the SHA-1 of the body in lower-case hexadecimal.
func (t *Txn) Script(sha string) (body string, ok bool) {
	s, ok := t.script(sha)
	return s.body, ok
}

func (t *Txn) script(sha string) (s script, ok bool) {
	if s, ok = t.scripts[sha]; !ok && !t.scriptsReset {
		s, ok = t.s.scripts.get(sha)
	}
	return s, ok
}

// LoadScript caches a script. A pinned script (SCRIPT LOAD) stays until SCRIPT FLUSH; of the others
// (EVAL) only the latest stay.
func (t *Txn) LoadScript(sha, body string, pinned bool) {
	if old, cached := t.script(sha); cached && (old.pinned || !pinned) {
		return
	}
	t.ws.begin(opScriptLoad, t.ws.db)
	t.ws.str(sha)
	t.ws.str(body)
	t.ws.int(Flag(pinned).Int)
	var pins int64
	if pinned {
		pins = script{sha: sha, body: body}.size()
	}
	t.size += pins
	t.pinned += pins
	prev, had := t.scripts[sha]
	if t.scripts == nil {
		t.scripts = map[string]script{}
	}
	t.scripts[sha] = script{sha: sha, body: body, pinned: pinned}
	t.undo(func() {
		t.pinned -= pins
		if had {
			t.scripts[sha] = prev
		} else {
			delete(t.scripts, sha)
		}
	})
}

// Pinned scripts and libraries may take only maxmemory/codeShare bytes, at least leastCode, so that keys have room. Pinned scripts may take
// half.
const (
	codeShare = 4
	leastCode = 1 << 20
)

// pinnedSize returns the memory that the pinned scripts will take when the transaction is applied.
func (t *Txn) pinnedSize() int64 {
	if t.scriptsReset {
		return t.pinned
	}
	return t.s.scripts.pinnedSize + t.pinned
}

// codeRoom returns how many bytes the pinned scripts and the libraries together may take; ok is false if there is no limit.
func (t *Txn) codeRoom() (bytes int64, ok bool) {
	limit := t.config.memoryLimit(t.env.Limits)
	return max(limit/codeShare, leastCode), limit > 0
}

// hasRoomForCode reports whether the pinned scripts and the libraries together may grow by the given number of bytes.
func (t *Txn) hasRoomForCode(bytes int64) bool {
	room, limited := t.codeRoom()
	return bytes <= 0 || !limited || t.pinnedSize()+t.libraries().size()+bytes <= room
}

// HasRoomForScript reports whether SCRIPT LOAD may pin a script. A script without room is not refused, but counts as one from EVAL.
func (t *Txn) HasRoomForScript(sha, body string) bool {
	if s, ok := t.script(sha); ok && s.pinned {
		return true
	}
	size := script{sha: sha, body: body}.size()
	if full(t.size+size, t.config.memoryLimit(t.env.Limits)) {
		return false
	}
	room, limited := t.codeRoom()
	return !limited || t.hasRoomForCode(size) && t.pinnedSize()+size <= room/2
}

// FlushScripts removes all scripts.
func (t *Txn) FlushScripts() {
	if t.scriptsReset && len(t.scripts) == 0 || !t.scriptsReset && t.s.Scripts() == 0 && len(t.scripts) == 0 {
		return
	}
	t.ws.begin(opScriptFlush, t.ws.db)
	t.size -= t.pinnedSize()
	scripts, reset, pinned := t.scripts, t.scriptsReset, t.pinned
	t.undo(func() { t.scripts, t.scriptsReset, t.pinned = scripts, reset, pinned })
	t.scripts, t.scriptsReset, t.pinned = nil, true, 0
}
