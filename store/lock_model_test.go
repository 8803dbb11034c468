package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestLocksAtRandom compares random calls with a model, and what a transaction shows with what its writes give when they are applied, and
// with a snapshot.
func TestLocksAtRandom(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newTokenDB(t)
		m := lockModel{}
		for range 400 {
			if r.IntN(3) == 0 {
				d.advance(r.Int64N(60))
			}
			call, want := m.random(r, d.now.Lease)
			got := d.do(words(call)...)
			if got = withoutToken(got); got != want {
				t.Fatalf("seed %d: %s: %s, want %s", seed, call, got, want)
			}
			if r.IntN(10) == 0 {
				txn := d.begin()
				txn.ExpireDue(100, 1<<20, 1<<20)
				d.apply(txn)
			}
			if r.IntN(8) == 0 {
				state := d.encode()
				s, err := Restore(bytes.NewReader(state))
				if err != nil {
					t.Fatalf("seed %d: %s: %v", seed, call, err)
				}
				size := d.s.DataSize()
				if d.s = s; size != s.DataSize() || !bytes.Equal(state, d.encode()) {
					t.Fatalf("seed %d: %s: the snapshot gives another state (%d bytes, %d before)", seed, call, s.DataSize(), size)
				}
			}
		}
	}
}

// withoutToken drops the token from the reply of LOCK.ACQUIRE.
func withoutToken(reply string) string {
	if rest, ok := strings.CutPrefix(reply, "[:"); ok {
		_, rest, _ = strings.Cut(rest, " ")
		return "granted " + rest
	}
	if code, _, ok := strings.Cut(reply, " "); ok && strings.HasPrefix(reply, "-") {
		return code
	}
	return reply
}

// lockModel is a lock with a list of its holders. Its leases and delays end exactly, as the transactions of these tests have no grace.
type lockModel struct {
	kind    string // "", SHARED, LIMIT 3
	holders []modelHolder
}

type modelHolder struct {
	owner                        string
	permits, holds, until, delay int64
}

// random returns a call and the reply of the model at a time.
func (m *lockModel) random(r *rand.Rand, now int64) (call, want string) {
	m.holders = slices.DeleteFunc(m.holders, func(h modelHolder) bool { return now > h.until+h.delay })
	owner := string(rune('a' + r.IntN(4)))
	i := slices.IndexFunc(m.holders, func(h modelHolder) bool { return h.owner == owner })
	held := i >= 0 && m.holders[i].holds > 0 && now <= m.holders[i].until
	lease := 1 + r.Int64N(100)
	switch r.IntN(5) {
	case 0:
		call = fmt.Sprintf("LOCK.RENEW k %s PX %d", owner, lease)
		if !held {
			return call, ":0"
		}
		m.holders[i].until = now + lease
		return call, ":1"
	case 1:
		call = "LOCK.RELEASE k " + owner
		lapse := r.IntN(2) == 0
		if lapse {
			call += " LAPSE"
		}
		if !held {
			return call, "nil"
		}
		h := &m.holders[i]
		left := h.holds - 1
		if h.holds = left; left == 0 {
			if lapse && h.delay > 0 {
				h.until = min(h.until, now)
			} else {
				m.holders = slices.Delete(m.holders, i, i+1)
			}
		}
		return call, fmt.Sprintf(":%d", left)
	}
	kind := []string{"", "SHARED", "LIMIT 3"}[r.IntN(3)]
	permits, delay, reentrant := int64(1), int64(0), r.IntN(2) == 0
	call = fmt.Sprintf("LOCK.ACQUIRE k %s PX %d", owner, lease)
	if kind == "" {
		delay = 1 + r.Int64N(50) // without MAXHOLD or DELAY it would have another form
	} else if r.IntN(2) == 0 {
		delay = r.Int64N(50)
	}
	call += fmt.Sprintf(" %s DELAY %d", kind, delay)
	if kind == "LIMIT 3" {
		permits = 1 + r.Int64N(3)
		call += fmt.Sprintf(" PERMITS %d", permits)
	}
	if reentrant {
		call += " REENTRANT"
	}
	call = strings.ReplaceAll(call, "  ", " ")
	if held {
		return call, m.again(kind, reentrant, i, permits, now+lease, now, delay)
	}
	used, others := int64(0), 0
	for _, h := range m.holders {
		if h.owner != owner {
			used, others = used+h.permits, others+1
		}
	}
	if others > 0 && m.kind != kind && m.kind != "" && kind != "" {
		return call, "-LOCKMODE"
	}
	if others > 0 && (m.kind != kind || kind == "" || kind == "LIMIT 3" && used+permits > 3) {
		return call, "nil-array"
	}
	if i >= 0 {
		m.holders = slices.Delete(m.holders, i, i+1)
	}
	m.kind = kind
	m.holders = append(m.holders, modelHolder{owner, permits, 1, now + lease, delay})
	return call, fmt.Sprintf("granted :%d :1]", lease)
}

// again is a LOCK.ACQUIRE by the holder i.
func (m *lockModel) again(kind string, reentrant bool, i int, permits, until, now, delay int64) string {
	h := &m.holders[i]
	shares := m.kind == "" && kind == "SHARED"
	switch {
	case m.kind != kind && !shares, shares && h.holds > 1:
		return "-LOCKMODE"
	case shares:
		m.kind = kind
	case !reentrant:
		return "nil-array"
	case h.permits != permits:
		return "-LOCKMODE"
	default:
		h.holds++
	}
	h.until, h.delay = max(h.until, until), delay
	return fmt.Sprintf("granted :%d :%d]", h.until-now, h.holds)
}
