package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/lockstep-io/lockstep/conformance/compatibility"
)

// sightRequest is what a suite says of a lock that one of its clients holds and another one wants.
type sightRequest struct {
	Client  string `json:"client"`
	Version string `json:"version"`
	Mode    string `json:"mode"`
	Key     string `json:"key"`
	Kind    string `json:"kind"`
	Owner   string `json:"owner"` // "" for a lock that knows no owners
	// Stored means that the library keeps its owner's name to itself: it is the string that the library has stored.
	Stored bool  `json:"stored"`
	Holds  int64 `json:"holds"`
	// Queue is how the other client must be shown; "" if the suite does not say.
	Queue string `json:"queue"`
}

// sightTime is how long the harness asks until the replies are right: the other client may only be about to ask for the lock.
const sightTime = 10 * time.Second

// sight serves POST /sight: it asks the node to which plain clients are connected until all is right, and records how they were. A suite fails by the
// answer if they stay wrong.
func (c *control) sight(w http.ResponseWriter, r *http.Request) {
	var want sightRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&want); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var got compatibility.Sight
	var said string
	for deadline := time.Now().Add(sightTime); ; time.Sleep(50 * time.Millisecond) {
		now, says, err := c.look(want)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		// rueidislock may give one of its three keys away for a moment, so the best look counts.
		if said == "" || rights(now) > rights(got) {
			got, said = now, says
		}
		if got.KindRight && got.OwnerRight && got.HoldsRight && got.WaitersRight && (got.ClientRight || !got.ClientKnown) || time.Now().After(deadline) {
			break
		}
	}
	c.mu.Lock()
	c.sights = append(c.sights, got)
	c.mu.Unlock()
	if !got.KindRight || !got.OwnerRight || !got.HoldsRight || got.ClientKnown && !got.ClientRight || !got.WaitersRight && want.Queue != "" {
		http.Error(w, fmt.Sprintf("want %+v, the node says %s", want, said), http.StatusConflict)
		return
	}
	answer(w, got, nil)
}

// rights counts what was right.
func rights(s compatibility.Sight) (n int) {
	for _, right := range [...]bool{s.KindRight, s.OwnerRight, s.HoldsRight, s.ClientRight, s.WaitersRight} {
		if right {
			n++
		}
	}
	return n
}

// recorded returns what has been recorded so far.
func (c *control) recorded() []compatibility.Sight {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sights
}

// look asks once.
func (c *control) look(want sightRequest) (got compatibility.Sight, said string, err error) {
	got = compatibility.Sight{Client: want.Client, Version: want.Version, Mode: want.Mode, Nodes: len(c.list)}
	node := c.followersFirst()[0]
	if want.Stored {
		stored, err := node.Do("GET", want.Key)
		if err != nil {
			return got, "", err
		}
		want.Owner, _ = stored.(string)
	}
	info, err := node.Do("LOCK.INFO", want.Key)
	if err != nil {
		return got, "", err
	}
	waiters, err := node.Do("LOCK.WAITERS", want.Key)
	if err != nil {
		return got, "", err
	}
	listed, err := node.Do("LOCK.LIST", "COUNT", "1000000", "MATCH", globEscape(want.Key))
	if err != nil {
		return got, "", err
	}
	row := map[string]any{}
	if reply, _ := listed.([]any); len(reply) == 2 {
		for _, r := range list(reply[1]) {
			if f := fields(r); f["key"] == want.Key {
				row = f
			}
		}
	}
	lock := fields(info)
	got.Kind, _ = lock["kind"].(string)
	got.KindRight = got.Kind == want.Kind && row["kind"] == want.Kind
	owners := list(lock["owners"])
	got.OwnerRight, got.HoldsRight = want.Owner == "" && len(owners) == 0, want.Owner == "" && len(owners) == 0
	for _, o := range owners {
		if f := fields(o); f["owner"] == want.Owner {
			got.OwnerRight, got.HoldsRight = true, f["holds"] == want.Holds
			addr, _ := f["addr"].(string)
			got.ClientRight = ofSuite(addr, c.pids()) && (row["owner"] != want.Owner || row["addr"] == addr)
			got.ClientKnown = f["client"] != nil
		}
	}
	for _, r := range list(waiters) {
		if queue, _ := fields(r)["queue"].(string); got.Queue == "" || queue == want.Queue {
			got.Queue = queue
		}
	}
	n, _ := lock["waiters"].(int64)
	got.WaitersRight = n > 0 && n == int64(len(list(waiters))) && n == row["waiters"] && got.Queue != "" && (want.Queue == "" || got.Queue == want.Queue)
	return got, fmt.Sprint(info, " ", waiters, " ", row), nil
}

// pids returns the processes of the nodes.
func (c *control) pids() (pids []int) {
	for _, n := range c.list {
		pids = append(pids, n.Process().Pid)
	}
	return pids
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// fields returns a map that a node has sent as names and values.
func fields(v any) map[string]any {
	m, flat := map[string]any{}, list(v)
	for i := 0; i+1 < len(flat); i += 2 {
		if name, ok := flat[i].(string); ok {
			m[name] = flat[i+1]
		}
	}
	return m
}

// globEscape returns a pattern that matches a key alone.
func globEscape(key string) string {
	var b []byte
	for i := range len(key) {
		if c := key[i]; c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, key[i])
	}
	return string(b)
}
