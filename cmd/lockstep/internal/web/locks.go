package web

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// pageCount is how many locks a page has, unless the request says otherwise; mostCount is the most.
	pageCount, mostCount = 100, 1000
	// mostPage is about how many bytes the texts of a page have: in JSON a byte may need six.
	mostPage = 1 << 20
	// A search looks through the locks for searchTime at most, or for sortTime if it has an order, and then says where to go on.
	searchTime, sortTime = time.Second, 10 * time.Second
	// mostStep is how many keys one command looks at, where a filter leaves few of them in its reply.
	mostStep = 8000
	// mostLists bounds the commands of one search, should the clock stand still.
	mostLists = 2000
)

// search is a request for a page of locks.
type search struct {
	db, count         int
	waiters           int64
	cursor, match     string
	kind, owner, sort string
	client            string
	compare           func(a, b object) int // nil: in the order of LOCK.LIST
}

// page is a part of the locks.
type page struct {
	locks  []object
	cursor string // where to go on; "0" at the end
	looked int    // commands that were needed
}

// sorts are the orders of a list of locks.
var sorts = map[string]func(a, b object) int{
	"key":     func(a, b object) int { return strings.Compare(a.Text("key"), b.Text("key")) },
	"owner":   func(a, b object) int { return strings.Compare(a.Text("owner"), b.Text("owner")) },
	"token":   func(a, b object) int { return cmp.Compare(b.Number("token"), a.Number("token")) }, // the latest first
	"age":     func(a, b object) int { return cmp.Compare(b.Number("age"), a.Number("age")) },     // the oldest first
	"waiters": func(a, b object) int { return cmp.Compare(b.Number("waiters"), a.Number("waiters")) },
	"ttl": func(a, b object) int { // the first to end first, and those without an end last
		x, y := a.Number("ttl"), b.Number("ttl")
		return cmp.Or(cmp.Compare(boolInt(x < 0), boolInt(y < 0)), cmp.Compare(x, y))
	},
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// number reads an integer of the query.
func number(q url.Values, name string, least, most, otherwise int64) (int64, error) {
	text := q.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, errNumber
	}
	return n, nil
}

// mostDB is beyond the databases of any server: the server itself says which it has.
const mostDB = 1 << 20

func database(q url.Values) (int, error) {
	n, err := number(q, "db", 0, mostDB, 0)
	return int(n), err
}

func parseSearch(q url.Values) (*search, error) {
	s := &search{cursor: cmp.Or(q.Get("cursor"), "0"), match: q.Get("match"), kind: q.Get("kind"), owner: q.Get("owner"), client: q.Get("client"), sort: q.Get("sort")}
	var err error
	if s.db, err = database(q); err != nil {
		return nil, err
	}
	count, err := number(q, "count", 1, mostCount, pageCount)
	if err != nil {
		return nil, err
	}
	if s.waiters, err = number(q, "waiters", 0, 1<<40, 0); err != nil {
		return nil, err
	}
	s.count = int(count)
	if s.sort != "" {
		if s.compare = sorts[s.sort]; s.compare == nil {
			return nil, errSort
		}
	}
	return s, nil
}

// command is the next LOCK.LIST of a search.
func (s *search) command(count int) []string {
	args := []string{"LOCK.LIST", "CURSOR", s.cursor, "COUNT", strconv.Itoa(count)}
	for _, o := range []struct{ word, value string }{{"MATCH", s.match}, {"KIND", s.kind}, {"OWNER", s.owner}, {"CLIENT", s.client}} {
		if o.value != "" {
			args = append(args, o.word, o.value)
		}
	}
	if s.waiters > 0 {
		args = append(args, "WAITERS", strconv.FormatInt(s.waiters, 10))
	}
	return args
}

// locks runs LOCK.LIST until there is a page of locks. With an order, it looks at all locks, for sortTime, and keeps the first.
//
// Few locks have waiters. In the order of those, it asks for them first, and then for as many others as the page has room for.
func (c *call) locks(s *search) (page, error) {
	if s.sort != "waiters" || s.waiters > 0 {
		return c.walk(s)
	}
	wanted := *s
	wanted.waiters = 1
	p, err := c.walk(&wanted)
	if err != nil || p.cursor != "0" || len(p.locks) >= s.count {
		return p, err
	}
	others := *s
	others.compare = nil
	rest, err := c.walk(&others)
	for _, o := range rest.locks {
		if o.Number("waiters") == 0 && len(p.locks) < s.count {
			p.locks = append(p.locks, o)
		}
	}
	return p, err
}

// walk is locks in one pass.
func (c *call) walk(s *search) (p page, err error) {
	began, step, most := c.Now(), s.count, searchTime
	if s.compare != nil {
		most = sortTime
	}
	for n, size := 0, 0; ; n++ {
		reply, err := c.ask(s.db, s.command(step)...)
		if err != nil {
			return p, err
		}
		pair, ok := reply.([]any)
		if !ok || len(pair) != 2 {
			return p, errReply
		}
		cursor, ok := pair[0].(string)
		if !ok {
			return p, errReply
		}
		list, err := toObjects(pair[1])
		if err != nil {
			return p, err
		}
		p.locks, p.looked, s.cursor = append(p.locks, list...), n+1, cursor
		size += extent(list)
		if s.compare != nil && (len(p.locks) > 2*s.count || size > 4*mostPage) {
			p.locks = s.first(p.locks)
			size = extent(p.locks)
		}
		if cursor == "0" || s.compare == nil && (len(p.locks) >= s.count || size >= mostPage) || n == mostLists || c.Now()-began > most {
			break
		}
		if few := len(list) < step/10; few && step >= mostCount {
			step = min(2*step, mostStep)
		} else {
			step = mostCount
		}
	}
	if p.cursor = s.cursor; s.compare != nil {
		p.locks = s.first(p.locks)
	}
	return p, nil
}

// first returns the first locks in the order of the search.
func (s *search) first(locks []object) []object {
	slices.SortStableFunc(locks, s.compare)
	locks = locks[:min(len(locks), s.count)]
	size := 0
	for i := range locks {
		if size += extent(locks[i : i+1]); size > mostPage {
			return slices.Clone(locks[:max(i, 1)])
		}
	}
	return slices.Clip(locks)
}

// extent returns how many bytes the texts of objects have.
func extent(list []object) (size int) {
	for _, o := range list {
		for name := range o {
			size += len(o.Text(name))
		}
	}
	return size
}

// lock returns what LOCK.INFO and LOCK.WAITERS say; waiters is nil if the user may not see them.
func (c *call) lock(db int, key string) (info object, waiters []object, err error) {
	reply, err := c.ask(db, "LOCK.INFO", key)
	if err != nil {
		return nil, nil, err
	}
	if reply == nil {
		return nil, nil, errNoLock
	}
	if info, err = toObject(reply); err != nil {
		return nil, nil, err
	}
	info.nested("owners")
	if !c.May(c.s.user, "lock.waiters", key) {
		return info, nil, nil
	}
	if reply, err = c.ask(db, "LOCK.WAITERS", key); err != nil {
		return nil, nil, err
	}
	waiters, err = toObjects(reply)
	return info, waiters, err
}

// mostHistory is how many entries of a history a page has.
const mostHistory = 1000

// history runs LOCK.HISTORY with the options of a query.
func (c *call) history(db int, key string, q url.Values) ([]object, error) {
	args := []string{"LOCK.HISTORY", key}
	for _, o := range []struct {
		name string
		most int64
	}{{"from", 1 << 62}, {"since", 1 << 53}, {"count", mostHistory}} {
		n, err := number(q, o.name, 0, o.most, -1)
		if err != nil {
			return nil, err
		}
		if n >= 0 {
			args = append(args, strings.ToUpper(o.name), strconv.FormatInt(n, 10))
		} else if o.name == "count" {
			args = append(args, "COUNT", strconv.Itoa(pageCount))
		}
	}
	if event := q.Get("event"); event != "" {
		args = append(args, "EVENT", event)
	}
	reply, err := c.ask(db, args...)
	if err != nil {
		return nil, err
	}
	return toObjects(reply)
}

// force runs LOCK.FORCE, and returns how many owners have lost the lock.
func (c *call) force(db int, key, reason, owner, token string) (int64, error) {
	if key == "" {
		return 0, errKey
	}
	if reason == "" || len(reason) > 1000 {
		return 0, errReason
	}
	args := []string{"LOCK.FORCE", key, "REASON", reason}
	if owner != "" {
		args = append(args, "OWNER", owner)
	}
	if token != "" {
		if n, err := strconv.ParseInt(token, 10, 64); err != nil || n < 0 {
			return 0, errNumber
		}
		args = append(args, "TOKEN", token)
	}
	reply, err := c.ask(db, args...)
	if err != nil {
		return 0, err
	}
	n, ok := reply.(int64)
	if !ok {
		return 0, errReply
	}
	return n, nil
}
