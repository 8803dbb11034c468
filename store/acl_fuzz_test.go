package store

import (
	"slices"
	"strings"
	"testing"
)

// FuzzACLRules: a refused rule changes nothing. ACL LIST and the log describe a user exactly.
func FuzzACLRules(f *testing.F) {
	for _, rules := range []string{
		"on\x00>secret\x00~app:*\x00+get\x00+@write\x00-del", "reset\x00allkeys\x00&ch*\x00+@all\x00-@dangerous", "nopass\x00%R~a*\x00%RW~b\x00%W~c\x00+config|get\x00-config|set",
		"(~x* +set) \x00(+get ~\"a b\" %R~'c')\x00clearselectors", "#" + strings.Repeat("a", 64) + "\x00!" + strings.Repeat("a", 64) + "\x00<p\x00resetkeys\x00resetchannels",
		"+select|0\x00+@nosuch\x00+nosuch\x00~\x00%~x\x00()\x00(", "+acl\x00-acl|setuser\x00+@all\x00-@all\x00allcommands\x00nocommands\x00sanitize-payload",
	} {
		f.Add(rules)
	}
	table := NewTable(Commands())
	var asked [][][]byte
	for _, line := range []string{"get a", "get app:1", "set x 1", "set b 1", "del app:1", "config get maxmemory", "mget a b c", "publish ch1 m", "subscribe ch1", "psubscribe ch*",
		"sort a by b* get c* store x", "eval x 1 a", "acl setuser x", "flushall", "rename a b", "copy app:1 x", "object encoding c", "select 0"} {
		var args [][]byte
		for _, w := range strings.Fields(line) {
			args = append(args, []byte(w))
		}
		asked = append(asked, args)
	}
	may := func(u *User) (list []DenyReason) {
		for _, args := range asked {
			if cmd, ok := table.Resolve(args); ok {
				why, _ := u.Check(cmd, args)
				list = append(list, why)
			}
		}
		for _, channel := range []string{"ch1", "ch*", "x"} {
			for _, pattern := range []bool{false, true} {
				why := DeniedChannel
				if u.MayListen(channel, pattern) {
					why = Allowed
				}
				list = append(list, why)
			}
		}
		return list
	}
	f.Fuzz(func(t *testing.T, text string) {
		before := NewUser(table, "u", false)
		was := before.String()
		u, refused := before.WithRules(strings.Split(text, "\x00"), false)
		if now := before.String(); now != was {
			t.Fatalf("the user that the rules were applied to a copy of was %q and is %q", was, now)
		}
		if refused != "" {
			if u != nil {
				t.Fatalf("refused, and yet a user: %s", refused)
			}
			return
		}
		packed := encodeRules(u.Rules())
		other := userOf(table, "u", decodeRules(packed))
		if again := encodeRules(other.Rules()); again != packed {
			t.Errorf("%q became %q", u.Rules(), other.Rules())
		}
		if u.Enabled != other.Enabled || u.NoPass != other.NoPass || !slices.Equal(u.Passwords, other.Passwords) {
			t.Errorf("%q: another way in: %q", u.Rules(), other.Rules())
		}
		if !slices.Equal(may(u), may(other)) {
			t.Errorf("%q: may %v, the one of the log %v", u.Rules(), may(u), may(other))
		}
	})
}
