package web

import (
	"errors"
	"strings"
	"sync"
	"time"
)

// mostList is how many bytes of INFO and of CLIENT LIST are kept.
const mostList = 8 << 20

// ask runs a command of the user.
func (c *call) ask(db int, args ...string) (any, error) {
	return c.s.link.do(c.r.Context(), db, mostText, args...)
}

// lines runs a command that replies a long text, and returns its lines.
func (c *call) lines(args ...string) ([]string, error) {
	reply, err := c.s.link.do(c.r.Context(), 0, mostList, args...)
	if err != nil {
		return nil, err
	}
	switch text := reply.(type) {
	case string:
		return strings.Split(strings.TrimRight(text, "\r\n"), "\n"), nil
	case cut:
		lines := strings.Split(text.head, "\n")
		return lines[:len(lines)-1], nil // the last one is not whole
	}
	return nil, errReply
}

// figures are the lines of INFO that the overview shows.
var figures = []string{"run_id", "uptime_in_seconds", "role", "keys", "leased_keys", "connected_clients", "blocked_clients", "instantaneous_ops_per_sec", "leases_lengthened_ms", "leases_lengthened_last_ms"}

// infoCommand leaves out the sections that cost most.
var infoCommand = []string{"INFO", "server", "clients", "stats", "replication", "keyspace"}

// overview is what the node says of itself, of the cluster and of all locks. missing has an error for each part that it does not say.
type overview struct {
	info    object
	members []object
	stats   object
	missing map[string]*fault
}

// overview asks for the parts one by one: without a leader, the node still answers INFO. It does not ask for what the user may not see,
// which would fill the ACL log.
//
// Without the figures of all locks, it is what a stream tells every second: LOCK.STATS looks at all events that the node remembers.
func (c *call) overview(withStats bool) (*overview, error) {
	o := &overview{missing: map[string]*fault{}}
	for _, part := range []struct {
		name    string
		command []string
		take    func() error
	}{
		{"info", infoCommand, func() (err error) { o.info, err = c.info(); return err }},
		{"members", []string{"LOCKSTEP", "MEMBERS"}, func() (err error) { o.members, err = c.members(); return err }},
		{"stats", []string{"LOCK.STATS", "TOP", "10"}, func() (err error) { o.stats, err = c.stats(); return err }},
	} {
		if part.name == "stats" && !withStats {
			continue
		}
		err := error(refusal("NOPERM the user has no permissions to run " + strings.Join(part.command[:min(2, len(part.command))], " ")))
		if c.May(c.s.user, part.command...) {
			err = part.take()
		}
		if errors.Is(err, errGone) {
			return nil, err
		}
		if err != nil {
			o.missing[part.name] = faultOf(err)
		}
	}
	if o.info == nil && o.members == nil && o.stats == nil { // say why
		return nil, o.missing["info"]
	}
	return o, nil
}

func (c *call) info() (object, error) {
	lines, err := c.lines(infoCommand...)
	if err != nil {
		return nil, err
	}
	all := object{}
	for _, line := range lines {
		if name, value, is := strings.Cut(strings.TrimRight(line, "\r"), ":"); is {
			all[name] = value
			keys, leased := keyspace(name, value)
			all["keys"], all["leased_keys"] = all.Number("keys")+keys, all.Number("leased_keys")+leased
		}
	}
	some := object{}
	for _, name := range figures {
		if _, is := all[name]; !is {
			continue
		}
		if some[name] = all[name]; isNumber(all.Text(name)) {
			some[name] = all.Number(name)
		}
	}
	return some, nil
}

// keyspace reads a line of INFO such as db0:keys=5,expires=3,avg_ttl=0.
func keyspace(name, value string) (keys, leased int64) {
	if rest, is := strings.CutPrefix(name, "db"); !is || !isNumber(rest) {
		return 0, 0
	}
	o := object{}
	for pair := range strings.SplitSeq(value, ",") {
		if name, n, is := strings.Cut(pair, "="); is {
			o[name] = n
		}
	}
	return o.Number("keys"), o.Number("expires")
}

func isNumber(text string) bool {
	return text != "" && len(text) < 19 && strings.Trim(text, "0123456789") == ""
}

func (c *call) members() ([]object, error) {
	reply, err := c.ask(0, "LOCKSTEP", "MEMBERS")
	if err != nil {
		return nil, err
	}
	return toObjects(reply)
}

const (
	// statsTime is how old the figures of all locks may be, and timelineTime how old the history on a page that fetches itself again. If they
	// take long, they may be keptShare times as old as they take.
	statsTime    = 5 * time.Second
	timelineTime = time.Second
	keptShare    = 50
)

// kept is what a session got last for a name. The node looks at all events that it remembers for it, so it is not to ask again and again.
type kept[T any] struct {
	mu    sync.Mutex
	name  string
	until time.Duration
	value T
	err   error
}

// of returns what was got for a name, or gets it with ask if that is too old.
func (k *kept[T]) of(c *call, name string, least time.Duration, fresh bool, ask func() (T, error)) (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	begun := c.Now()
	if !fresh && k.name == name && begun < k.until {
		return k.value, k.err
	}
	value, err := ask()
	took := c.Now() - begun
	switch {
	case err == nil:
		k.until = begun + took + max(least, keptShare*took)
	case c.r.Context().Err() != nil: // it is this client that did not wait
		return value, err
	default:
		k.until = begun + took + stateTime
	}
	k.name, k.value, k.err = name, value, err
	return k.value, k.err
}

func (c *call) stats() (object, error) {
	return c.s.stats.of(c, "", statsTime, false, c.askStats)
}

func (c *call) askStats() (object, error) {
	reply, err := c.ask(0, "LOCK.STATS", "TOP", "10")
	if err != nil {
		return nil, err
	}
	o, err := toObject(reply)
	if err != nil {
		return nil, err
	}
	// The counts of each kind of lock are a map in a map: make them rows.
	if list, is := o["kinds"].([]any); is {
		rows, all := []object{}, int64(0)
		for i := 0; i+1 < len(list); i += 2 {
			row, err := toObject(list[i+1])
			if err != nil {
				return nil, err
			}
			row["kind"] = list[i]
			all += row.Number("granted")
			rows = append(rows, row)
		}
		o["kinds"] = rows
		o["grants_per_second"] = c.s.grants.at(c.Now(), all)
	}
	for name := range o {
		o.nested(name)
	}
	return o, nil
}

// grantRate measures grants per second, for the overviews of a session. It looks back for a second at least.
type grantRate struct {
	mu         sync.Mutex
	since      time.Duration
	count      int64
	last       int64
	begun, has bool
}

func (g *grantRate) at(now time.Duration, count int64) any {
	g.mu.Lock()
	defer g.mu.Unlock()
	past := now - g.since
	switch {
	case !g.begun:
		g.begun, g.since, g.count = true, now, count
	case past >= time.Second:
		g.last, g.has = int64(float64(max(count-g.count, 0))/past.Seconds()+0.5), true
		g.since, g.count = now, count
	}
	if !g.has {
		return nil
	}
	return g.last
}

// mostClients is how many clients a page has.
const mostClients = 1000

// clients returns the clients of this node, at most mostClients, and how many there are.
func (c *call) clients() (list []object, all int, err error) {
	lines, err := c.lines("CLIENT", "LIST")
	if err != nil {
		return nil, 0, err
	}
	for _, line := range lines[:min(len(lines), mostClients)] {
		o := object{}
		for pair := range strings.SplitSeq(strings.TrimRight(line, "\r"), " ") {
			if name, value, is := strings.Cut(pair, "="); is {
				if o[name] = value; isNumber(value) && name != "name" && name != "user" {
					o[name] = o.Number(name)
				}
			}
		}
		list = append(list, o)
	}
	return list, len(lines), nil
}

// administer runs a command of an operator that replies OK.
func (c *call) administer(args ...string) error {
	_, err := c.ask(0, args...)
	return err
}

// rights are what the pages need, by name.
var rights = []struct {
	name    string
	command []string
}{
	{"overview", []string{"info"}}, {"stats", []string{"lock.stats"}}, {"list", []string{"lock.list"}}, {"info", []string{"lock.info"}},
	{"waiters", []string{"lock.waiters"}}, {"history", []string{"lock.history"}}, {"force", []string{"lock.force"}}, {"clients", []string{"client", "list"}},
	{"members", []string{"lockstep", "members"}}, {"transfer", []string{"lockstep", "transfer"}}, {"remove", []string{"lockstep", "remove", "x"}},
	{"events", []string{"subscribe", seldomChannels[0]}}, {"every_event", []string{"psubscribe", allChannels}},
}

// may returns the rights of the user. The rights to a key may be fewer.
func (c *call) may() map[string]bool {
	m := make(map[string]bool, len(rights))
	for _, r := range rights {
		m[r.name] = c.May(c.s.user, r.command...)
	}
	return m
}
