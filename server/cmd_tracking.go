package server

import (
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// trackingOptions are the arguments of CLIENT TRACKING.
type trackingOptions struct {
	tracking
	given []string // the prefixes in the arguments
}

func (s *session) trackingOptions(words [][]byte) (o *trackingOptions, refusal store.Error) {
	o = &trackingOptions{}
	for i := 0; i < len(words); i++ {
		more := i+1 < len(words)
		switch word := strings.ToLower(string(words[i])); {
		case word == "redirect" && more:
			i++
			if o.redirect != 0 {
				return nil, errOneRedirect
			}
			id, ok := redistext.ParseInt(words[i])
			if !ok {
				return nil, store.ErrNotInteger
			}
			// The target must be a client of the same user. Otherwise a user could get another user's client cut off by many messages.
			if target := s.srv.session(id); target == nil || target.account.Load() != s.account.Load() || target.needsAuth() {
				return nil, errNoRedirect
			}
			o.redirect = id
		case word == "bcast":
			o.bcast = true
		case word == "optin":
			o.optin = true
		case word == "optout":
			o.optout = true
		case word == "noloop":
			o.noloop = true
		case word == "prefix" && more:
			i++
			o.given = append(o.given, string(words[i]))
		default:
			return nil, store.ErrSyntax
		}
	}
	return o, ""
}

// fit checks the options against each other and against the session's present tracking.
func (o *trackingOptions) fit(old *tracking) store.Error {
	switch {
	case !o.bcast && len(o.given) > 0:
		return errPrefixNoBcast
	case old != nil && old.bcast != o.bcast:
		return errSwitchBcast
	case o.bcast && (o.optin || o.optout):
		return errOptBcast
	case o.optin && o.optout:
		return errOptBoth
	case old != nil && (o.optin && old.optout || o.optout && old.optin):
		return errSwitchOpt
	}
	return o.firstOverlap(old.listens())
}

// firstOverlap returns an error for the first given prefix that overlaps another one or one in old. It does not compare all pairs.
func (o *trackingOptions) firstOverlap(old []string) store.Error {
	meets := overlapping(o.given)
	for i, prefix := range o.given {
		if other, is := firstMet(old, prefix); is {
			return errPrefixExists(prefix, other)
		}
		if !meets[i] {
			continue
		}
		for j, other := range o.given {
			if j != i && overlap(prefix, other) {
				return errPrefixTwice(prefix, other)
			}
		}
	}
	return ""
}

// firstMet returns a prefix in old that overlaps the given one: one of the two begins with the other. The list old is sorted. Its
// prefixes do not overlap, except with "" at old[0]. So besides "", only the two neighbours in the order may overlap the given prefix.
func firstMet(old []string, prefix string) (other string, is bool) {
	at, _ := slices.BinarySearch(old, prefix)
	for _, other := range slices.Concat(old[:min(1, len(old))], old[max(at-1, 0):min(at+1, len(old))]) {
		if overlap(other, prefix) {
			return other, true
		}
	}
	return "", false
}

// overlapping reports for each prefix whether it overlaps another one. In sorted order, the strings
// that begin with a prefix stand directly after the prefix.
func overlapping(prefixes []string) []bool {
	order := make([]int, len(prefixes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(prefixes[a], prefixes[b]) })
	meets, begun := make([]bool, len(prefixes)), []int{}
	for _, i := range order {
		for n := len(begun); n > 0 && !strings.HasPrefix(prefixes[i], prefixes[begun[n-1]]); n-- {
			begun = begun[:n-1]
		}
		if n := len(begun); n > 0 {
			meets[i], meets[begun[n-1]] = true, true
		}
		begun = append(begun, i)
	}
	return meets
}

func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

// merged merges two sorted lists into one, without duplicates.
func merged(a, b []string) []string {
	all := make([]string, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if b[0] < a[0] {
			a, b = b, a
		}
		all, a = append(all, a[0]), a[1:]
	}
	return slices.Compact(append(append(all, a...), b...))
}

// maxPrefixes limits the memory of one client's prefixes to that of so many empty ones. With more, RESET could take long.
const maxPrefixes = 10_000

var errManyPrefixes = errf("ERR The client would listen to too many prefixes: together they may take %d bytes, counting %d more for each", maxPrefixes*prefixCost, prefixCost)

func doClientTracking(s *session, args [][]byte) store.Reply {
	o, refusal := s.trackingOptions(args[3:])
	if refusal != "" {
		return store.Err(refusal)
	}
	on, ok := onOff(args[2])
	switch {
	case !ok:
		return store.Err(store.ErrSyntax)
	case !on:
		s.srv.hub.tracker.disable(s)
		s.caching = false
		return store.OK
	}
	old := s.tracking.Load()
	if refusal := o.fit(old); refusal != "" {
		return store.Err(refusal)
	}
	how := &o.tracking
	if o.bcast {
		how.prefixes = o.given
		if len(o.given) == 0 {
			how.prefixes = []string{""} // all keys
		}
		if !s.mayHold(sizeOf(how.prefixes)) {
			return answered // the server has cut the client off
		}
		slices.Sort(how.prefixes)
		how.prefixes = merged(how.prefixes, old.listens())
		if sizeOf(how.prefixes) > maxPrefixes*prefixCost {
			return store.Err(errManyPrefixes)
		}
	}
	s.srv.hub.tracker.enable(s, how)
	return store.OK
}

func doClientCaching(s *session, args [][]byte) store.Reply {
	how := s.tracking.Load()
	if how == nil {
		return store.Err(errCachingOff)
	}
	switch strings.ToLower(string(args[2])) {
	case "yes":
		if !how.optin {
			return store.Err(errCachingYes)
		}
	case "no":
		if !how.optout {
			return store.Err(errCachingNo)
		}
	default:
		return store.Err(store.ErrSyntax)
	}
	s.caching = true
	return store.OK
}

// used ends the effect of CLIENT CACHING, which covers one command or one transaction. CLIENT commands do
// not end the effect.
func (s *session) used(cmd *store.Command) {
	if s.caching && s.multi == nil && (cmd == nil || !strings.HasPrefix(cmd.FullName(), "client|")) {
		s.caching = false
	}
}

func doClientGetRedir(s *session, _ [][]byte) store.Reply {
	return store.Int(s.tracking.Load().redirection())
}

// redirection returns the client id that CLIENT GETREDIR shows.
func (how *tracking) redirection() int64 {
	if how == nil {
		return -1
	}
	return how.redirect
}

func doClientTrackingInfo(s *session, _ [][]byte) store.Reply {
	how := s.tracking.Load()
	flags, prefixes := []string{"off"}, []string{}
	if how != nil {
		flags, prefixes = how.flags(s.caching), how.prefixes
	}
	set := store.Strs(flags...)
	set.Kind = store.Set
	return store.MapOf(
		store.Str("flags"), set,
		store.Str("redirect"), store.Int(how.redirection()),
		store.Str("prefixes"), store.Strs(prefixes...),
	)
}

func (how *tracking) flags(caching bool) []string {
	flags := []string{"on"}
	add := func(set bool, name string) {
		if set {
			flags = append(flags, name)
		}
	}
	add(how.bcast, "bcast")
	add(how.optin, "optin")
	add(how.optin && caching, "caching-yes")
	add(how.optout, "optout")
	add(how.optout && caching, "caching-no")
	add(how.noloop, "noloop")
	add(how.broken.Load(), "broken_redirect")
	return flags
}

// letters returns the letters for tracking among the flags in CLIENT LIST.
func (how *tracking) letters() string {
	if how == nil {
		return ""
	}
	letters := "t"
	if how.broken.Load() {
		letters += "R"
	}
	if how.bcast {
		letters += "B"
	}
	return letters
}
