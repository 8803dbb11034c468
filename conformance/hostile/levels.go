package hostile

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// levels are measurements that an attack must leave as they were.
type levels struct {
	numbers map[string]int64  // may grow by slack
	texts   map[string]string // must be the same
}

// slack is by how much a number may grow.
var slack = map[string]int64{
	"connected_clients": 2, // connections of the judge that are closing
	"goroutines":        12,
	"descriptors":       8,
	"links":             24, // grows when the node becomes the leader, because a leader has more links than a follower
	"used_memory":       64 << 20,
	"term":              20, // frames of a member may cause elections, each of which begins a term
}

// counted are the fields of INFO that an attack must leave as they were.
var counted = []string{"connected_clients", "cluster_connections", "blocked_clients", "tracking_clients", "clients_in_timeout_table", "watching_clients",
	"pubsub_channels", "pubsub_patterns", "pubsubshard_channels", "tracking_total_keys", "tracking_total_items", "tracking_total_prefixes",
	"number_of_functions", "number_of_libraries", "used_memory"}

// measure measures the levels of a node. It first runs a garbage collection, because garbage is no trace of an attack.
func (f *fleet) measure(node int) (*levels, error) {
	l := &levels{numbers: map[string]int64{}, texts: map[string]string{}}
	c, err := f.dial(node)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.insist("MEMORY", "PURGE"); err != nil {
		return nil, err
	}
	info, err := c.insist("INFO", "everything")
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(fmt.Sprint(info)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	for _, name := range counted {
		if n, err := strconv.ParseInt(fields[name], 10, 64); err == nil {
			l.numbers[name] = n
		}
	}
	pid := f.nodes[node].Process().Pid
	if l.numbers["descriptors"], l.numbers["links"], err = descriptors(pid, f.peerPorts()); err != nil {
		return nil, err
	}
	if n, ok := f.goroutines(node); ok {
		l.numbers["goroutines"] = n
	}
	status, err := c.insist("LOCKSTEP", "STATUS")
	if err != nil {
		return nil, err
	}
	words, _ := status.([]any)
	for i := 0; i+1 < len(words); i += 2 {
		if words[i] == "term" {
			l.numbers["term"], _ = strconv.ParseInt(fmt.Sprint(words[i+1]), 10, 64)
		}
	}
	return l, l.ask(c)
}

// peerPorts returns the ports at which the nodes reach each other.
func (f *fleet) peerPorts() map[string]bool {
	ports := map[string]bool{}
	add := func(addr string) {
		if _, port, err := net.SplitHostPort(addr); err == nil {
			ports[port] = true
		}
	}
	for _, n := range f.nodes {
		add(n.PeerAddr)
	}
	for _, fr := range f.fronts {
		add(fr.ln.Addr().String())
	}
	return ports
}

// ask reads the levels that must stay exactly the same.
func (l *levels) ask(c *line) error {
	for name, args := range map[string][]string{
		"users": {"ACL", "LIST"}, "parameters": {"CONFIG", "GET", "*"}, "members": {"LOCKSTEP", "MEMBERS"},
		"scripts": {"EVAL", canary, "1", "secret:string"},
	} {
		got, err := c.insist(args...)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		l.texts[name] = fmt.Sprint(got)
		if name == "members" {
			l.texts[name] = members(got)
		}
	}
	return nil
}

// members returns who is a member of the cluster. It leaves out who leads, answers or lags, because that changes without an attack.
func members(reply any) string {
	var list []string
	rows, _ := reply.([]any)
	for _, row := range rows {
		words, _ := row.([]any)
		for i := 0; i+1 < len(words); i += 2 {
			if slices.Contains([]any{"id", "peer", "client", "voter"}, words[i]) {
				list = append(list, fmt.Sprint(words[i], "=", words[i+1]))
			}
		}
	}
	return strings.Join(list, " ")
}

// goroutines reads the number of goroutines from the profile of a node. It returns false if the node does not show the profile.
func (f *fleet) goroutines(node int) (int64, bool) {
	req, err := http.NewRequest(http.MethodGet, "http://"+f.nodes[node].HTTPAddr+"/debug/pprof/goroutine?debug=1", nil)
	if err != nil {
		return 0, false
	}
	req.SetBasicAuth("default", passwords["default"])
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil && err != io.EOF {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(line), "goroutine profile: total "), 10, 64)
	return n, err == nil
}

// above lists what has grown or changed since the levels in the argument "before" were measured.
func (l *levels) above(before *levels) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(l.numbers)) {
		was, known := before.numbers[name]
		if now := l.numbers[name]; known && now > was+slack[name] {
			list = append(list, fmt.Sprintf("%s: %d, before %d", name, now, was))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.texts)) {
		if was, now := before.texts[name], l.texts[name]; was != now {
			list = append(list, name+": "+changed(was, now))
		}
	}
	return list
}

// changed shows where two texts begin to differ.
func changed(was, now string) string {
	i := 0
	for i < len(was) && i < len(now) && was[i] == now[i] {
		i++
	}
	from := max(0, i-60)
	return fmt.Sprintf("%q, before %q", now[from:min(len(now), i+120)], was[from:min(len(was), i+120)])
}

// settled waits until a node's levels are as before. After the limit it returns what still differs.
func (f *fleet) settled(node int, before *levels, limit time.Duration) ([]string, error) {
	for deadline := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		now, err := f.measure(node)
		if err != nil {
			return nil, err
		}
		list := now.above(before)
		if len(list) == 0 || time.Now().After(deadline) {
			return list, nil
		}
	}
}

// prefixes are the prefixes of keys that may exist.
var prefixes = []string{"held:", "mutex:", "lease:", "secret:"}

// spoils are the prefixes of keys that attackers may have created.
var spoils = []string{"evil:", "app:"}

// clean deletes the keys that attackers may create. It returns the keys that no client may have created.
func (f *fleet) clean() (strange []string, err error) {
	c, err := f.dial(0)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, args := range [][]string{{"FUNCTION", "FLUSH"}, {"SCRIPT", "FLUSH"}} {
		if _, err := c.insist(args...); err != nil {
			return nil, err
		}
	}
	info, err := c.insist("INFO", "keyspace")
	if err != nil {
		return nil, err
	}
	for _, m := range databases.FindAllStringSubmatch(fmt.Sprint(info), -1) {
		if _, err := c.insist("SELECT", m[1]); err != nil {
			return nil, err
		}
		more, err := sweep(c)
		if err != nil {
			return nil, err
		}
		strange = append(strange, more...)
	}
	return strange, nil
}

var databases = regexp.MustCompile(`(?m)^db(\d+):`)

// sweep does what clean does, for one database.
func sweep(c *line) (strange []string, err error) {
	for cursor := "0"; ; {
		got, err := c.insist("SCAN", cursor, "COUNT", "1000")
		if err != nil {
			return nil, err
		}
		page, _ := got.([]any)
		if len(page) != 2 {
			return nil, fmt.Errorf("SCAN: %v", got)
		}
		keys, _ := page[1].([]any)
		doomed := []string{"UNLINK"}
		for _, k := range keys {
			key := fmt.Sprint(k)
			switch {
			case begins(key, spoils):
				doomed = append(doomed, key)
			case !begins(key, prefixes):
				strange = append(strange, key)
			}
		}
		if len(doomed) > 1 {
			if _, err := c.insist(doomed...); err != nil {
				return nil, err
			}
		}
		if cursor = fmt.Sprint(page[0]); cursor == "0" {
			return strange, nil
		}
	}
}

func begins(s string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(s, p) })
}
