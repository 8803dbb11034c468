package web

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// figure is a number of the overview with its name.
type figure struct{ Name, Value string }

// cell is a cell of a table; if Key is not empty, it leads to the page of that lock.
type cell struct{ Text, Key string }

// table is a table of the overview.
type table struct {
	Name    string
	Columns []string
	Rows    [][]cell
}

type overviewView struct {
	Errors  []string
	Figures []figure
	Members []object
	Tables  []table
}

func (c *call) uiOverview() (any, error) {
	o, err := c.overview(true)
	if err != nil {
		return nil, err
	}
	v := overviewView{Members: o.members}
	for _, part := range []string{"info", "members", "stats"} {
		if f := o.missing[part]; f != nil {
			v.Errors = append(v.Errors, missingText(part, f))
		}
	}
	v.Figures = append(memberFigures(o.members), infoFigures(o.info)...)
	for _, name := range sortedNames(o.stats) {
		switch field := o.stats[name].(type) {
		case []object:
			if len(field) > 0 {
				v.Tables = append(v.Tables, tableOf(name, field))
			}
		case object:
			for _, inner := range sortedNames(field) {
				v.Figures = append(v.Figures, figure{title(name + " " + inner), field.Text(inner)})
			}
		case []any:
		default:
			v.Figures = append(v.Figures, figure{title(name), o.stats.Text(name)})
		}
	}
	return c.show(http.StatusOK, "overview", "Overview", "", v)
}

// missingText says why a part of the overview is not there.
func missingText(part string, f *fault) string {
	if f.status == http.StatusNotImplemented {
		return "this version has no " + part + " of locks"
	}
	return part + ": " + f.text
}

func memberFigures(members []object) (list []figure) {
	if members == nil {
		return nil
	}
	leader, up, behind := "none", 0, int64(0)
	for _, m := range members {
		if m.Number("leader") == 1 {
			leader = m.Text("id")
		}
		if m.Number("up") == 1 {
			up++
			behind = max(behind, m.Number("behind"))
		}
	}
	return []figure{{"Leader", leader}, {"Members up", fmt.Sprintf("%d of %d", up, len(members))}, {"Most behind (entries)", strconv.FormatInt(behind, 10)}}
}

func infoFigures(info object) (list []figure) {
	if info == nil {
		return nil
	}
	role := map[string]string{"master": "leader", "slave": "follower"}[info.Text("role")]
	return []figure{
		{"Keys", info.Text("keys")}, {"Keys with a lease", info.Text("leased_keys")},
		{"This node", role}, {"Up for", span(info.Number("uptime_in_seconds") * 1000)}, {"Clients of this node", info.Text("connected_clients")},
		{"Of them, waiting", info.Text("blocked_clients")}, {"Commands a second", info.Text("instantaneous_ops_per_sec")},
		{"Leases lengthened by, in all", span(info.Number("leases_lengthened_ms"))}, {"Leases lengthened by, last", span(info.Number("leases_lengthened_last_ms"))},
	}
}

func sortedNames(o object) (names []string) {
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// title makes a heading of a name in a reply.
func title(name string) string {
	name = strings.NewReplacer("_", " ", "-", " ").Replace(name)
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// tableNames are the captions of the tables of LOCK.STATS.
var tableNames = map[string]string{"kinds": "What has happened, by the kind of the lock", "top": "Locks that change owners most often"}

// tableOf makes a table of a list of objects: the key first, and then what the first object has.
func tableOf(name string, list []object) table {
	t := table{Name: cmp.Or(tableNames[name], title(name))}
	names := sortedNames(list[0])
	for _, first := range []string{"kind", "key"} {
		if at := slices.Index(names, first); at > 0 {
			names = slices.Insert(slices.Delete(names, at, at+1), 0, first)
		}
	}
	for _, n := range names {
		t.Columns = append(t.Columns, title(n))
	}
	for _, o := range list {
		row := make([]cell, len(names))
		for i, n := range names {
			row[i].Text = o.Text(n)
			if n == "key" && o.Number("db") == 0 {
				row[i].Key = whole(o, n)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// choice is an entry of a list to choose from.
type choice struct{ Name, Title string }

var orders = []choice{{"", "none (fastest)"}, {"waiters", "most waiters first"}, {"ttl", "first to end first"}, {"age", "held longest first"}, {"token", "latest first"}, {"key", "by name"}, {"owner", "by owner"}}

// kindsKnown are proposals: the server says what it does not know.
var kindsKnown = []string{"plain", "shedlock", "reentrant", "exclusive", "shared", "limit", "redisson", "redisson-fair", "redisson-readwrite"}

type locksView struct {
	Q, Owner, Client, Kind, Waiters, Sort, Count string
	Sorts                                        []choice
	Kinds, Counts                                []string
	DB                                           int
	Locks                                        []object
	Said, First, Next                            string
}

// pattern makes a pattern of what a user types: a part of a name, unless it is a pattern already.
func pattern(text string) string {
	if text == "" || strings.ContainsAny(text, `*?[\`) {
		return text
	}
	return "*" + text + "*"
}

func (c *call) uiLocks() (any, error) {
	q, err := c.query()
	if err != nil {
		return nil, err
	}
	s, err := parseSearch(q)
	if err != nil {
		return nil, err
	}
	typed := q.Get("q")
	s.match, s.owner, s.client = pattern(typed), pattern(s.owner), pattern(s.client)
	v := locksView{Q: typed, Owner: q.Get("owner"), Client: q.Get("client"), Kind: s.kind, Sort: s.sort, Count: strconv.Itoa(s.count), DB: s.db,
		Sorts: orders, Kinds: kindsKnown, Counts: []string{"50", "100", "250", "1000"}}
	if s.waiters > 0 {
		v.Waiters = strconv.FormatInt(s.waiters, 10)
	}
	if !slices.Contains(v.Counts, v.Count) {
		v.Counts = append(v.Counts, v.Count)
	}
	first := s.cursor == "0"
	var exact []object
	if s.match != typed && first { // a name in full is found at once, among however many
		if exact, err = c.named(s.db, typed); err != nil {
			return nil, err
		}
	}
	p, err := c.locks(s)
	if err != nil {
		return nil, err
	}
	v.Locks = p.locks
	if len(exact) > 0 {
		v.Locks = append(exact, slices.DeleteFunc(p.locks, func(o object) bool { return o.Text("key") == typed })...)
	}
	v.Said = fmt.Sprintf("%d locks on this page.", len(v.Locks))
	if !first {
		q.Del("cursor")
		v.First = locksPath + "?" + q.Encode()
	}
	switch {
	case p.cursor == "0":
	case s.compare != nil:
		v.Said += " There are more locks than could be looked at in time: narrow the search."
	default:
		q.Set("cursor", p.cursor)
		v.Next = locksPath + "?" + q.Encode()
	}
	return c.show(http.StatusOK, "locks", "Locks", "", v)
}

// named returns the row of the lock with a name, if there is one and the user may see it.
func (c *call) named(db int, key string) ([]object, error) {
	if !c.May(c.s.user, "lock.info", key) {
		return nil, nil
	}
	reply, err := c.ask(db, "LOCK.INFO", key)
	if err != nil || reply == nil {
		return nil, err
	}
	o, err := toObject(reply)
	if err != nil {
		return nil, err
	}
	if owners, is := o.nested("owners")["owners"].([]object); is && len(owners) > 0 {
		o["owner"] = owners[0]["owner"]
	}
	return []object{o}, nil
}

type timelineView struct {
	History      []object
	HistoryFault string
	AllKeys      bool
}

// timeline asks for a history, and turns it round.
func (c *call) timeline(db int, key string) (v timelineView, err error) {
	v.AllKeys = key == "*"
	if !c.May(c.s.user, "lock.history", key) {
		v.HistoryFault = "This user may not see the history."
		return v, nil
	}
	live := c.r.Header.Get(liveHeader) != ""
	list, err := c.s.events.of(c, strconv.Itoa(db)+" "+key, timelineTime, !live, func() ([]object, error) { return c.history(db, key, url.Values{}) })
	v.History = slices.Clone(list)
	if errors.Is(err, errGone) {
		return v, err
	}
	if err != nil {
		if v.HistoryFault = faultOf(err).text; faultOf(err).status == http.StatusNotImplemented {
			v.HistoryFault = "This version has no history."
		}
	}
	slices.Reverse(v.History)
	return v, nil
}

type lockView struct {
	timelineView
	DB       int
	Key      string
	Info     object // nil if nobody holds the lock
	Owners   []object
	Waiters  []object
	MayForce bool
	Force    string
}

func (c *call) uiLock() (any, error) {
	db, key, err := c.keyOf()
	if err != nil {
		return nil, err
	}
	v := lockView{DB: db, Key: key, Force: lockPath("/ui/lock/force", db, key)}
	v.Info, v.Waiters, err = c.lock(db, key)
	if err != nil && !errors.Is(err, errNoLock) {
		return nil, err
	}
	v.Owners, _ = v.Info["owners"].([]object)
	v.MayForce = c.May(c.s.user, "lock.force", key, "REASON", "x")
	if v.timelineView, err = c.timeline(db, key); err != nil {
		return nil, err
	}
	return c.show(http.StatusOK, "lock", "Lock "+visible(key), ended(c.r.URL.Query().Get("ended")), v)
}

// ended says what LOCK.FORCE did, after its form.
func ended(text string) string {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0:
		return ""
	case n == 0:
		return "Nobody has lost the lock: it had changed before."
	case n == 1:
		return "One owner has lost the lock."
	}
	return fmt.Sprintf("%d owners have lost the lock.", n)
}

func (c *call) uiForce() (any, error) {
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	db, key, err := c.keyOf()
	if err != nil {
		return nil, err
	}
	n, err := c.force(db, key, fields.Get("reason"), "", fields.Get("token"))
	if err != nil {
		return nil, err
	}
	c.goTo(lockPath(lockPagePath, db, key) + "&ended=" + strconv.FormatInt(n, 10))
	return nil, nil
}

type clientsView struct {
	List []object
	All  int
}

func (c *call) uiClients() (any, error) {
	list, all, err := c.clients()
	if err != nil {
		return nil, err
	}
	return c.show(http.StatusOK, "clients", "Clients", "", clientsView{list, all})
}

func (c *call) uiCluster() (any, error) {
	members, err := c.members()
	if err != nil {
		return nil, err
	}
	notice := ""
	if c.r.URL.Query().Get("done") == "1" {
		notice = "Done."
	}
	return c.show(http.StatusOK, "cluster", "Cluster", notice, members)
}

func (c *call) uiTransfer() (any, error) {
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	if err := c.transfer(fields.Get("member")); err != nil {
		return nil, err
	}
	c.goTo(clusterPath + "?done=1")
	return nil, nil
}

func (c *call) uiRemove() (any, error) {
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	if fields.Get("member") != fields.Get("confirm") {
		return nil, errConfirm
	}
	if err := c.remove(fields.Get("member")); err != nil {
		return nil, err
	}
	c.goTo(clusterPath + "?done=1")
	return nil, nil
}

func (c *call) uiEvents() (any, error) {
	v, err := c.timeline(0, "*")
	if err != nil {
		return nil, err
	}
	return c.show(http.StatusOK, "events", "Events", "", v)
}
