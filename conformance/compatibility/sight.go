package compatibility

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Sight is how LOCK.LIST, LOCK.INFO and LOCK.WAITERS showed a lock that a client of a suite held and another wanted. The harness asked them while
// that was so (conformance/clients/sight.go).
type Sight struct {
	Client  string `json:"client"`
	Version string `json:"version"`
	Mode    string `json:"mode"`
	Nodes   int    `json:"nodes"`
	Kind    string `json:"kind"`  // as the server called it
	Queue   string `json:"queue"` // how it said that the other client waited; "" if it did not know of that client

	KindRight, OwnerRight, HoldsRight, WaitersRight bool
	// ClientKnown means that a client was named, and ClientRight that its address is that of a process of the suite.
	ClientKnown, ClientRight bool
}

// ReadSights reads what the suites in a directory have recorded.
func ReadSights(dir string) ([]Sight, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []Sight
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(bytes.NewReader(b))
		for n := 1; lines.Scan(); n++ {
			var s Sight
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, n, err)
			}
			if s.Client == "" || s.Version == "" || s.Mode == "" || s.Nodes == 0 {
				return nil, fmt.Errorf("%s:%d: client, version, mode or nodes is missing", file, n)
			}
			all = append(all, s)
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// WriteSights writes what a suite has recorded, in an order that does not depend on when its tests ran.
func WriteSights(file string, sights []Sight) error {
	sights = slices.Clone(sights)
	slices.SortFunc(sights, func(a, b Sight) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Nodes, b.Nodes))
	})
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, s := range sights {
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

const sightHead = `
## Locks as LOCK.LIST shows them

While a client of a suite held a lock and another one wanted it, the harness asked LOCK.LIST, LOCK.INFO and LOCK.WAITERS of the node to which plain clients are connected. It compared
the replies with what the suite said: the kind, the owner as the library knows it, how often the owner holds the lock, whether the address of the client that has taken the lock is that of a process of the suite, and whether the other client was shown, and how (docs/locks.md). A row is about all modes of a
client, with one node and with three; "n of m" says that the reply was right in n of m runs. Not shown are clients that ask with another name each time (pottery; ShedLock, which leaves waiting to its caller), and those that wait for the message of
a tracked key (rueidislock, valkeylock). A client that waits for a message of Spring's registry is shown only while it asks.

| client | version | kind | kind right | owner right | holds right | client right | waiters right | the other client was |
|---|---|---|---|---|---|---|---|---|
`

// writeSights writes one row for each client and kind.
func writeSights(b *strings.Builder, sights []Sight) {
	type row struct{ client, version string }
	of := map[row][]Sight{}
	var rows []row
	for _, s := range sights {
		k := row{s.Client, s.Version}
		if of[k] == nil {
			rows = append(rows, k)
		}
		of[k] = append(of[k], s)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.version, b.version)) })
	b.WriteString(sightHead)
	for _, k := range rows {
		list := of[k]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", k.client, k.version, words(list, func(s Sight) string { return s.Kind }),
			howOften(list, func(s Sight) bool { return s.KindRight }), howOften(list, func(s Sight) bool { return s.OwnerRight }),
			howOften(list, func(s Sight) bool { return s.HoldsRight }), clientRight(list), howOften(list, func(s Sight) bool { return s.WaitersRight }),
			words(list, func(s Sight) string { return cmp.Or(s.Queue, "not shown") }))
	}
}

// clientRight says how often the client was right. Of locks without owners, nobody knows it.
func clientRight(list []Sight) string {
	known := slices.DeleteFunc(slices.Clone(list), func(s Sight) bool { return !s.ClientKnown })
	if len(known) == 0 {
		return "not known"
	}
	return howOften(known, func(s Sight) bool { return s.ClientRight })
}

// words lists the different words of the rows.
func words(list []Sight, word func(Sight) string) string {
	var all []string
	for _, s := range list {
		all = append(all, word(s))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

func howOften(list []Sight, right func(Sight) bool) string {
	n := 0
	for _, s := range list {
		if right(s) {
			n++
		}
	}
	switch n {
	case 0:
		return "no"
	case len(list):
		return "yes"
	}
	return fmt.Sprintf("%d of %d", n, len(list))
}
