package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// listing answers LOCK.LIST over so many locks, as SCAN does.
func listing(locks int) func([]string) string {
	return func(args []string) string {
		least := 0
		if n := len(args); n > 6 && args[n-2] == "WAITERS" {
			least, _ = strconv.Atoi(args[n-1])
			args = args[:n-2]
		}
		if args[0] != "LOCK.LIST" {
			return "+OK\r\n"
		}
		from, _ := strconv.Atoi(args[2])
		count, _ := strconv.Atoi(args[4])
		var rows []string
		next := min(from+count, locks)
		for i := from; i < next; i++ {
			if i%1000 < least {
				continue
			}
			if len(args) < 6 || strings.HasSuffix(fmt.Sprint(i), args[6]) {
				rows = append(rows, array(bulk("key"), bulk(fmt.Sprint("k", i)), bulk("waiters"), fmt.Sprintf(":%d\r\n", i%1000), bulk("ttl"), fmt.Sprintf(":%d\r\n", i%7-1)))
			}
		}
		if next == locks {
			next = 0
		}
		return array(bulk(fmt.Sprint(next)), array(rows...))
	}
}

type listed struct {
	Cursor string
	Locks  []struct {
		Key          string
		Waiters, TTL int64
	}
}

func (n *node) list(t *testing.T, cookie, query string) (l listed) {
	t.Helper()
	w := n.visit(visit{target: "/api/v1/locks?" + query, cookie: cookie})
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	return l
}

// TestPages: pages have as many locks as were asked for, whatever the filter leaves out, and all pages together have all.
func TestPages(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	n.change(func() { n.reply = listing(5_000) })
	all, pages := 0, 0
	for cursor := "0"; pages == 0 || cursor != "0"; pages++ {
		l := n.list(t, cookie, "count=1000&cursor="+cursor)
		all, cursor = all+len(l.Locks), l.Cursor
	}
	if all != 5_000 || pages != 5 {
		t.Errorf("%d locks on %d pages", all, pages)
	}
	n.commands()
	if l := n.list(t, cookie, "match=321"); len(l.Locks) != 5 || l.Locks[0].Key != "k321" || l.Cursor != "0" {
		t.Errorf("%+v", l)
	}
	if got := n.commands(); len(got) > 8 {
		t.Errorf("%d commands for one page", len(got))
	}
	l := n.list(t, cookie, "sort=waiters&count=8")
	if len(l.Locks) != 8 || l.Locks[4].Waiters != 999 || l.Locks[5].Waiters != 998 {
		t.Errorf("%+v", l)
	}
	l = n.list(t, cookie, "sort=waiters&count=1000")
	if len(l.Locks) != 1000 || l.Locks[999].Waiters != 800 {
		t.Errorf("%d locks, %+v", len(l.Locks), l.Locks[len(l.Locks)-1])
	}
	n.change(func() { n.reply = listing(900) })
	l = n.list(t, cookie, "sort=waiters&count=1000") // those without waiters come last, and once
	if len(l.Locks) != 900 || l.Locks[898].Waiters != 1 || l.Locks[899].Waiters != 0 {
		t.Errorf("%d locks, %+v", len(l.Locks), l.Locks[len(l.Locks)-1])
	}
	n.change(func() { n.reply = listing(5_000) })
	l = n.list(t, cookie, "sort=ttl&count=1000")
	if l.Locks[0].TTL != 0 || slices.ContainsFunc(l.Locks, func(k struct {
		Key          string
		Waiters, TTL int64
	}) bool {
		return k.TTL < 0
	}) {
		t.Error("a lock without an end comes before others")
	}
}

// TestPagesOfLongNames: a page has fewer locks than were asked for if their names are long, and all pages together have all.
func TestPagesOfLongNames(t *testing.T) {
	const locks = 1000
	n := newNode(t)
	cookie := n.logIn(t, "op")
	name := strings.Repeat("<", mostText-8)
	n.change(func() {
		n.reply = func(args []string) string {
			from, _ := strconv.Atoi(args[2])
			var rows []string
			next := from + 100 // LOCK.LIST ends a reply after a megabyte, too
			for i := from; i < next; i++ {
				rows = append(rows, array(bulk("key"), bulk(fmt.Sprint(name, i)), bulk("owner"), bulk(name), bulk("ttl"), ":5\r\n"))
			}
			return array(bulk(fmt.Sprint(next%locks)), array(rows...))
		}
	})
	all, pages := 0, 0
	for cursor := "0"; pages == 0 || cursor != "0"; pages++ {
		w := n.visit(visit{target: "/api/v1/locks?count=1000&cursor=" + cursor, cookie: cookie})
		var l listed
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Body.Len() > 12*mostPage {
			t.Fatal(err, w.Body.Len())
		}
		all, cursor = all+len(l.Locks), l.Cursor
	}
	if all != locks || pages > 10 {
		t.Errorf("%d locks on %d pages", all, pages)
	}
	for _, order := range []string{"key", "ttl"} {
		if w := n.visit(visit{target: "/api/v1/locks?count=1000&sort=" + order, cookie: cookie}); w.Code != http.StatusOK || w.Body.Len() > 7*mostPage || w.Body.Len() < mostPage {
			t.Errorf("by %s: %d, %d bytes", order, w.Code, w.Body.Len())
		}
	}
}

// TestSearchEnds: a search among locks without an end stops after a while, and says where to go on.
func TestSearchEnds(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	n.change(func() {
		n.reply = func([]string) string {
			n.now += searchTime / 10
			return array(bulk("77"), array())
		}
	})
	n.commands()
	if l := n.list(t, cookie, "match=nothing"); l.Cursor != "77" || len(l.Locks) != 0 {
		t.Errorf("%+v", l)
	}
	if got := len(n.commands()); got > 12 {
		t.Errorf("%d commands", got)
	}
}

func TestCommands(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	n.change(func() { n.reply = goodReply })
	for _, k := range []struct {
		method, target, body string
		want                 string
	}{
		{"", "locks?db=3&match=a*&kind=plain&owner=o*&waiters=2&count=7&cursor=5", "", "SELECT 3,LOCK.LIST CURSOR 5 COUNT 7 MATCH a* KIND plain OWNER o* WAITERS 2"},
		{"", "lock?key=%FF%00+%22", "", "SELECT 0,LOCK.INFO \xff\x00 \",LOCK.WAITERS \xff\x00 \""},
		{"", "lock/history?key=a&from=3&since=9&count=5&event=forced", "", "LOCK.HISTORY a FROM 3 SINCE 9 COUNT 5 EVENT forced"},
		{"", "lock/history?key=*", "", "LOCK.HISTORY * COUNT 100"},
		{"POST", "lock/force", `{"key":"a","reason":"r s","owner":"o","token":12}`, "LOCK.FORCE a REASON r s OWNER o TOKEN 12"},
		{"POST", "lock/force?key=%FF", `{"reason":"r","db":2}`, "SELECT 2,LOCK.FORCE \xff REASON r"},
		{"", "lock?key=a&db=3;x", "", ""}, {"", "lock?key=a&db=%zz", "", ""}, {"", "lock/history?key=a;b", "", ""}, {"", "locks?match=%", "", ""},
		{"POST", "lock/force", "{\"key\":\"a\xff\",\"reason\":\"r\"}", ""},
		{"POST", "cluster/transfer", `{}`, "SELECT 0,LOCKSTEP TRANSFER"},
		{"POST", "cluster/transfer", `{"member":"n2"}`, "LOCKSTEP TRANSFER n2"},
		{"POST", "cluster/remove", `{"member":"n3"}`, "LOCKSTEP REMOVE n3"},
		{"POST", "cluster/remove", `{}`, ""},
		{"POST", "lock/force", `{"key":"a"}`, ""},
		{"POST", "lock/force", `{"key":"a","reason":"r"} {}`, ""},
		{"POST", "lock/force", `{"key":"a","reason":"r","token":-1}`, ""},
		{"POST", "lock/force", `{"key":"a","reason":"r","token":"1 OWNER x"}`, ""},
		{"", "locks?count=1001", "", ""}, {"", "locks?waiters=-1", "", ""}, {"", "locks?sort=size", "", ""}, {"", "lock", "", ""}, {"", "locks?db=-1", "", ""},
	} {
		n.commands()
		w := n.visit(visit{method: k.method, target: "/api/v1/" + k.target, body: k.body, cookie: cookie})
		if got := strings.Join(n.commands(), ","); got != k.want || (w.Code == http.StatusBadRequest) != (k.want == "") {
			t.Errorf("%s %s: ran %q, want %q (%d %s)", k.target, k.body, got, k.want, w.Code, w.Body)
		}
	}
}

// TestTextsOfStrangers: whatever bytes a name has, JSON says which they are, and a long text takes little room.
func TestTextsOfStrangers(t *testing.T) {
	n := newNode(t)
	cookie := n.logIn(t, "op")
	long := strings.Repeat("x", 1<<20)
	n.change(func() {
		n.reply = func(args []string) string {
			return array(bulk("0"), array(array(bulk("key"), bulk("a\xff\x00<script>\u2028"), bulk("owner"), bulk(long))))
		}
	})
	w := n.visit(visit{target: "/api/v1/locks", cookie: cookie})
	var l struct{ Locks []map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil {
		t.Fatal(err)
	}
	lock := l.Locks[0]
	if lock["key"] != "a\uFFFD\x00<script>\u2028" || lock["key_base64"] != "Yf8APHNjcmlwdD7igKg=" || lock["owner_length"] != float64(1<<20) || lock["owner"] != long[:mostText] {
		t.Errorf("%.300v", lock)
	}
	if strings.Contains(w.Body.String(), "<script>") || w.Body.Len() > 8<<10 {
		t.Errorf("%d bytes: %.200s", w.Body.Len(), w.Body)
	}
}

func FuzzReply(f *testing.F) {
	for _, in := range []string{"+OK\r\n", "*2\r\n:1\r\n$3\r\nabc\r\n", "$-1\r\n", "*-1\r\n", "-ERR x\r\n", "*1000000000\r\n", "$9999999999\r\nx", strings.Repeat("*1\r\n", 100), "$9223372036854775807\r\n"} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := readReply(newReader(in), func() int { return 10 })
		if err != nil {
			return
		}
		if _, err := json.Marshal(forJSON(v)); err != nil {
			t.Error(err)
		}
	})
}

// TestParametersAreText: no parameter can bring words of its own into a command.
func TestParametersAreText(t *testing.T) {
	s, err := parseSearch(url.Values{"match": {"a KIND plain"}, "cursor": {"0 COUNT 9"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.command(5); !slices.Equal(got, []string{"LOCK.LIST", "CURSOR", "0 COUNT 9", "COUNT", "5", "MATCH", "a KIND plain"}) {
		t.Errorf("%q", got)
	}
}
