package history

import (
	"strings"
	"testing"
)

func TestCheckMessages(t *testing.T) {
	// The n-th message, counted from 1, was sent from time 10n to time 10n+5. The message "e" was not acknowledged.
	var sent []Publication
	for i, text := range strings.Split("abcdefgh", "") {
		at := int64(10 * (i + 1))
		sent = append(sent, Publication{Text: text, Invoke: at, Return: at + 5, Acknowledged: text != "e"})
	}
	hears := func(since int64, texts string) Subscription {
		s := Subscription{Via: "n1", Since: since}
		if texts != "" {
			s.Heard = strings.Split(texts, "")
		}
		return s
	}
	for _, test := range []struct {
		name string
		subs []Subscription
		want string // "": nothing wrong
	}{
		{"everything", []Subscription{hears(1, "abcdefgh")}, ""},
		{"nothing", []Subscription{hears(1, "")}, ""},
		{"from a subscription to an end", []Subscription{hears(32, "def"), hears(1, "abcd")}, ""},
		{"published while the subscription was made", []Subscription{hears(33, "cdef"), hears(33, "def")}, ""},
		{"not acknowledged and not delivered", []Subscription{hears(1, "abcdfg"), hears(1, "abcdf")}, ""},
		{"a gap", []Subscription{hears(1, "abd")}, "but not c"},
		{"a gap at the beginning", []Subscription{hears(1, "bc")}, "but not a"},
		{"a gap where nobody knows what was delivered", []Subscription{hears(1, "abcdef"), hears(1, "abcdf")}, "differ"},
		{"twice", []Subscription{hears(1, "aab")}, "heard a twice"},
		{"never sent", []Subscription{hears(1, "axb")}, "x, which nobody sent"},
		{"another order", []Subscription{hears(1, "abcd"), hears(1, "acbd")}, "differ"},
		{"another order at the end", []Subscription{hears(1, "abcd"), hears(1, "abdc")}, "differ"},
	} {
		got := strings.Join(CheckMessages(sent, test.subs), "\n")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
