package server

import (
	"fmt"
	"slices"
	"testing"
)

// TestPrefixesOfOneClientAreBounded: the number and the bytes of a client's prefixes are bounded, whether they come in one
// command or in many.
func TestPrefixesOfOneClientAreBounded(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		listen := func(prefixes ...string) string {
			words := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
			for _, prefix := range prefixes {
				words = append(words, "PREFIX", prefix)
			}
			return array(words...)
		}
		refused := "-" + string(errManyPrefixes) + "\r\n"
		c := ts.tracker(t, "BCAST PREFIX a")
		for i := range 3 {
			c.send(listen(numbered(3000, fmt.Sprint(i, "%05d"))...))
			c.expect("+OK\r\n")
		}
		c.send(listen(numbered(3000, "x%05d")...))
		c.expect(refused)
		c.send(listen(fmt.Sprintf("long%03000000d", 0)))
		c.expect(refused)
		if _, _, n := ts.hub.tracker.sizes(); n != 9001 {
			t.Errorf("%d prefixes", n)
		}
		ts.fake.set("b") // nobody tracks b yet
		ts.fake.set("a")
		c.expect(invalidation("a"))
		c.send(listen("b"))
		c.expect("+OK\r\n")
		ts.fake.set("b")
		c.expect(invalidation("b"))
	})
}

// TestMorePrefixesAreListedAlone: a CLIENT TRACKING command that adds prefixes makes a list only of the new ones, so a
// client's earlier prefixes make it hardly slower.
func TestMorePrefixesAreListedAlone(t *testing.T) {
	many := &tracking{prefixes: numbered(9000, "%05d")}
	more := &tracking{prefixes: merged([]string{"x"}, many.prefixes)}
	if got := more.prefixesBeyond(many); !slices.Equal(got, []string{"x"}) {
		t.Errorf("%q are listed", got)
	}
	if got := many.prefixesBeyond(more); len(got) != 0 {
		t.Errorf("%q are no longer listed", got)
	}
	for _, c := range []struct{ a, b, beyond, all []string }{
		{[]string{"", "b", "d"}, []string{"a", "b", "c"}, []string{"", "d"}, []string{"", "a", "b", "c", "d"}},
		{[]string{"a"}, nil, []string{"a"}, []string{"a"}},
		{nil, []string{"a"}, nil, []string{"a"}},
	} {
		if got := (&tracking{prefixes: c.a}).prefixesBeyond(&tracking{prefixes: c.b}); !slices.Equal(got, c.beyond) {
			t.Errorf("%q beyond %q: %q", c.a, c.b, got)
		}
		if got := merged(c.a, c.b); !slices.Equal(got, c.all) {
			t.Errorf("%q and %q: %q", c.a, c.b, got)
		}
	}
}

// TestFirstMet compares the result of firstMet with that of a look at each prefix.
func TestFirstMet(t *testing.T) {
	for _, old := range [][]string{nil, {""}, {"", "b", "d"}, {"aa", "ab", "b"}, {"a", "c"}, {"ab", "ad", "bc"}} {
		for _, prefix := range []string{"", "a", "aa", "aaa", "ab", "abc", "ac", "b", "ba", "bcd", "c", "d", "zz"} {
			want, wanted := "", false
			if i := slices.IndexFunc(old, func(o string) bool { return overlap(o, prefix) }); i >= 0 {
				want, wanted = old[i], true
			}
			if got, is := firstMet(old, prefix); got != want || is != wanted {
				t.Errorf("%q among %q: %q, %v; want %q, %v", prefix, old, got, is, want, wanted)
			}
		}
	}
}

// TestRedirectionToAnotherUser: a client must not redirect messages to a client of another user. The error is that for no such client.
func TestRedirectionToAnotherUser(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		admin, victim, mate := ts.dial(t), ts.dial(t), ts.dial(t)
		for _, user := range []string{"app", "good"} {
			admin.send(array("ACL", "SETUSER", user, "on", ">pw", "~*", "+@all"))
			admin.expect("+OK\r\n")
		}
		id := func(c *client) int64 {
			sessions := ts.each()
			return sessions[slices.IndexFunc(sessions, func(s *session) bool { return s.addr == c.conn.LocalAddr().String() })].id
		}
		victim.do("AUTH good pw", "+OK\r\n")
		mate.do("AUTH app pw", "+OK\r\n")
		c := ts.dial(t)
		c.do("AUTH app pw", "+OK\r\n")
		c.do(fmt.Sprint("CLIENT TRACKING ON BCAST REDIRECT ", id(victim)), "-"+string(errNoRedirect)+"\r\n")
		c.do(fmt.Sprint("CLIENT TRACKING ON BCAST REDIRECT ", id(admin)), "-"+string(errNoRedirect)+"\r\n")
		c.do(fmt.Sprint("CLIENT TRACKING ON BCAST REDIRECT ", id(mate)), "+OK\r\n")
	})
}
