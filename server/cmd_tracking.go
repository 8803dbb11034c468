package server

import (
	"slices"
	"strings"

	"lockstep/store"
	"lockstep/store/redistext"
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
			if s.srv.session(id) == nil {
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
	all := o.given
	if old != nil {
		all = slices.Concat(old.prefixes, o.given)
	}
	return o.firstOverlap(all, len(all)-len(o.given))
}

// firstOverlap returns an error for the first given prefix that overlaps another one. all has the
// session's old prefixes first, then the given ones. One command may hold very many prefixes, so
// overlapping finds the candidates without comparing every pair.
func (o *trackingOptions) firstOverlap(all []string, old int) store.Error {
	meets := overlapping(all)
	for i, prefix := range o.given {
		if !meets[old+i] {
			continue
		}
		for j, other := range all {
			switch {
			case j == old+i || !overlap(prefix, other):
			case j < old:
				return errPrefixExists(prefix, other)
			default:
				return errPrefixTwice(prefix, other)
			}
		}
	}
	return ""
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
		if old != nil {
			how.prefixes = append(how.prefixes, old.prefixes...)
		}
		slices.Sort(how.prefixes)
		how.prefixes = slices.Compact(how.prefixes)
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

// used ends the effect of CLIENT CACHING: it covers one command or one transaction, and CLIENT commands
// do not end it.
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

// letters returns the tracking flags in CLIENT LIST.
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
