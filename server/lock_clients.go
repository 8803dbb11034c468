package server

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// The clients that hold locks: LOCK.INFO and LOCK.LIST tell their addresses and names, which their nodes know. So, outside a transaction, the
// node that gets one of these commands does more than to forward it. LOCK.LIST with SORT is many commands for the leader, none of which
// takes long.

// asksClients reports whether a command is answered with the help of other nodes.
func (srv *Server) asksClients(cmd *store.Command) bool {
	return cmd == srv.lockInfo || cmd == srv.lockList
}

// Clients says which of the clients with these ids this node has.
func (h *Hub) Clients(ids []uint64) []cluster.ClientName {
	names := make([]cluster.ClientName, len(ids))
	srv := h.data.Load()
	for i, id := range ids {
		var s *session
		if srv != nil && id < 1<<63 {
			s = srv.session(int64(id))
		}
		if s == nil {
			names[i].Gone = true
			continue
		}
		s.lifecycle.mu.Lock()
		names[i] = cluster.ClientName{Addr: s.addr, Name: s.name}
		s.lifecycle.mu.Unlock()
	}
	return names
}

// listQuery is what the leader does not do of a LOCK.LIST.
type listQuery struct {
	sort   string // age, waiters, ttl or ""
	client string // a pattern
	named  bool   // the pattern was given
	count  int
	rest   [][]byte // the arguments for the leader; if it is sorted, without CURSOR and COUNT
}

// A sorted LOCK.LIST has listCount locks without COUNT, and mostListed at most. The node asks the leader for listPart keys at a time.
const (
	listCount  = 10
	mostListed = 1000
	listPart   = "1000"
)

// parseList reads the arguments of LOCK.LIST. What it does not know, the leader judges.
func parseList(args [][]byte) (q listQuery, fault store.Error) {
	q.count = listCount
	q.rest = append(q.rest, args[0])
	var cursor, count [][]byte
	for args = args[1:]; len(args) > 0; args = args[min(2, len(args)):] {
		pair := args[:min(2, len(args))]
		word := strings.ToLower(string(pair[0]))
		switch {
		case len(pair) < 2:
			return q, store.ErrSyntax
		case word == "sort":
			q.sort = strings.ToLower(string(pair[1]))
			if !slices.Contains(lockOrders, q.sort) {
				return q, errLockOrder
			}
		case word == "client":
			q.client, q.named = string(pair[1]), true
		case word == "cursor":
			cursor = pair
		case word == "count":
			count = pair
		default:
			q.rest = append(q.rest, pair...)
		}
	}
	if q.sort == "" {
		q.rest = append(append(q.rest, cursor...), count...)
		return q, ""
	}
	if cursor != nil && string(cursor[1]) != "0" {
		return q, errLockCursor
	}
	if count != nil {
		n, ok := redistext.ParseInt(count[1])
		if !ok || n < 1 || n > mostListed {
			return q, errLockCount
		}
		q.count = int(n)
	}
	return q, ""
}

var lockOrders = []string{"age", "waiters", "ttl"}

// doLockSight runs LOCK.INFO or LOCK.LIST.
func doLockSight(s *session, args [][]byte) store.Reply {
	cmd := s.command.Load()
	if cmd == s.srv.lockInfo {
		return s.nameHolders(s.askForLocks(cmd, args))
	}
	q, fault := parseList(args)
	switch {
	case fault != "":
		return store.Err(fault)
	case q.sort == "":
		return q.filter(s.nameHolders(s.askForLocks(cmd, q.rest)))
	}
	return s.sortedLocks(cmd, &q)
}

// askForLocks asks the leader, and adds the subscribers of this node.
func (s *session) askForLocks(cmd *store.Command, args [][]byte) store.Reply {
	r := s.settle(s.srv.backend.SubmitPart(s.client, []cluster.Call{s.call(cmd, args)}, nil)[0])
	return s.addSubscribers(cmd, args, r)
}

// rowsOf returns the rows of a page of LOCK.LIST.
func rowsOf(page *store.Reply) []store.Reply {
	if page.Kind != store.Array || len(page.Elems) != 2 {
		return nil
	}
	return page.Elems[1].Elems
}

// filter leaves out the locks whose clients do not match.
func (q *listQuery) filter(page store.Reply) store.Reply {
	if q.named && rowsOf(&page) != nil {
		page.Elems[1].Elems = slices.DeleteFunc(page.Elems[1].Elems, func(row store.Reply) bool { return !q.matches(&row) })
	}
	return page
}

// matches reports whether the address or the name of a lock's client matches, or its node and id (n1:7).
func (q *listQuery) matches(row *store.Reply) bool {
	texts := []string{field(row, "addr").Str, field(row, "name").Str}
	if node := field(row, "node"); node.Kind == store.Bulk {
		texts = append(texts, node.Str+":"+strconv.FormatInt(field(row, "client").Int, 10))
	}
	return slices.ContainsFunc(texts, func(text string) bool { return text != "" && redistext.Match(q.client, text) })
}

// field returns a field of a row.
func field(row *store.Reply, name string) store.Reply {
	if at := place(row, name); at >= 0 {
		return row.Elems[at]
	}
	return store.Nil
}

// place returns the index of a field's value, or -1.
func place(row *store.Reply, name string) int {
	for i := 0; i+1 < len(row.Elems); i += 2 {
		if row.Elems[i].Str == name {
			return i + 1
		}
	}
	return -1
}

// sortedLocks asks for all locks of the database, part by part, and returns the first ones. The locks may change meanwhile.
func (s *session) sortedLocks(cmd *store.Command, q *listQuery) store.Reply {
	var best []store.Reply
	for cursor := "0"; ; {
		args := append(slices.Clone(q.rest), []byte("CURSOR"), []byte(cursor), []byte("COUNT"), []byte(listPart))
		page := s.askForLocks(cmd, args)
		if page.IsError() || len(page.Elems) != 2 {
			return page
		}
		if q.named {
			page = q.filter(s.nameHolders(page))
		}
		for _, row := range rowsOf(&page) {
			at, _ := slices.BinarySearchFunc(best, row, q.compare)
			if at < q.count {
				best = slices.Insert(best, at, row)
				best = best[:min(len(best), q.count)]
			}
		}
		if cursor = page.Elems[0].Str; cursor == "0" || s.isClosing() {
			break
		}
	}
	page := store.List(store.Str("0"), store.List(best...))
	if !q.named {
		page = s.nameHolders(page)
	}
	return page
}

// compare compares two rows: the oldest first, the longest queue first, or the shortest lease first. Locks without a lease, and locks of unknown
// age, come last.
func (q *listQuery) compare(a, b store.Reply) int {
	x, y := field(&a, q.sort).Int, field(&b, q.sort).Int
	order := cmp.Compare(y, x)
	if q.sort == "ttl" {
		order = cmp.Compare(uint64(x), uint64(y)) // -1 is the largest
	}
	return cmp.Or(order, cmp.Compare(field(&a, "key").Str, field(&b, "key").Str))
}

// nameHolders adds the addresses and the names of the clients that hold locks. It asks their nodes, all at the same time. Of a client that has
// gone, they are empty; if its node does not answer, they stay nil.
func (s *session) nameHolders(r store.Reply) store.Reply {
	holders := map[string]map[uint64][]*store.Reply{} // by node and client
	eachHolder(&r, func(row *store.Reply) {
		node, id := field(row, "node"), field(row, "client")
		if node.Kind != store.Bulk || id.Kind != store.Integer {
			return
		}
		if holders[node.Str] == nil {
			holders[node.Str] = map[uint64][]*store.Reply{}
		}
		holders[node.Str][uint64(id.Int)] = append(holders[node.Str][uint64(id.Int)], row)
	})
	var all sync.WaitGroup
	for node, clients := range holders {
		all.Go(func() { s.nameClients(node, clients) })
	}
	all.Wait()
	return r
}

// nameClients names the clients of one node.
func (s *session) nameClients(node string, clients map[uint64][]*store.Reply) {
	ids := make([]uint64, 0, len(clients))
	for id := range clients {
		ids = append(ids, id)
	}
	for part := range slices.Chunk(ids, cluster.MostClients) {
		names, ok := s.srv.backend.ClientsOf(context.Background(), node, part)
		if !ok {
			return
		}
		for i, id := range part {
			for _, row := range clients[id] {
				if addr, name := place(row, "addr"), place(row, "name"); addr >= 0 && name >= 0 {
					row.Elems[addr], row.Elems[name] = store.Str(names[i].Addr), store.Str(names[i].Name)
				}
			}
		}
	}
}

// eachHolder calls fn for each row in a reply that has a client.
func eachHolder(r *store.Reply, fn func(row *store.Reply)) {
	if r.Kind == store.Map && place(r, "client") >= 0 {
		fn(r)
	}
	if r.Kind == store.Map || r.Kind == store.Array {
		for i := range r.Elems {
			eachHolder(&r.Elems[i], fn)
		}
	}
}
