package server

import "github.com/lockstep-io/lockstep/store"

// flagName is a flag with the name that COMMAND prints for it. COMMAND prints the names in the order of
// the lists below.
type flagName[F any] struct {
	flag F
	name string
}

var commandFlagNames = []flagName[store.Flags]{
	{store.Write, "write"}, {store.ReadOnly, "readonly"}, {store.DenyOOM, "denyoom"},
	{store.Admin, "admin"}, {store.PubSub, "pubsub"}, {store.NoScript, "noscript"},
	{store.Blocking, "blocking"}, {store.Loading, "loading"}, {store.Stale, "stale"},
	{store.SkipMonitor, "skip_monitor"}, {store.SkipSlowlog, "skip_slowlog"},
	{store.Fast, "fast"}, {store.NoAuth, "no_auth"},
	{store.NoMandatoryKeys, "no_mandatory_keys"},
	{store.NoAsyncLoading, "no_async_loading"}, {store.NoMulti, "no_multi"},
	{store.MovableKeys, "movablekeys"}, {store.AllowBusy, "allow_busy"},
}

var keyFlagNames = []flagName[store.KeyFlags]{
	{store.KeyRO, "RO"}, {store.KeyRW, "RW"}, {store.KeyOW, "OW"}, {store.KeyRM, "RM"},
	{store.KeyAccess, "access"}, {store.KeyUpdate, "update"}, {store.KeyInsert, "insert"}, {store.KeyDelete, "delete"},
	{store.KeyNotKey, "not_key"}, {store.KeyIncomplete, "incomplete"}, {store.KeyVariable, "variable_flags"},
}

func namesOfFlags[F store.Flags | store.KeyFlags](have F, names []flagName[F]) []string {
	list := []string{}
	for _, n := range names {
		if have&n.flag != 0 {
			list = append(list, n.name)
		}
	}
	return list
}

// legacyRange returns the range of keys in COMMAND INFO that the specs with fixed positions form; zeros if they form none.
func legacyRange(specs []store.KeySpec) (first, last, step int64) {
	fixed := []store.KeySpec{}
	for _, s := range specs {
		if s.NumKeys == 0 && !s.Unknown() {
			fixed = append(fixed, s)
		}
	}
	if len(fixed) == 0 {
		return 0, 0, 0
	}
	end := func(s store.KeySpec) int64 {
		if s.Last < 0 {
			return int64(s.Last)
		}
		return int64(s.Begin + s.Last)
	}
	if len(specs) == 1 {
		return int64(fixed[0].Begin), end(fixed[0]), int64(max(fixed[0].Step, 1))
	}
	first, last = int64(fixed[0].Begin), end(fixed[0])
	for i, s := range fixed {
		if max(s.Step, 1) != 1 || i > 0 && last != int64(s.Begin-1) {
			return 0, 0, 0
		}
		last = end(s)
	}
	return first, last, 1
}

// keySpecs returns the ninth element of COMMAND INFO.
func keySpecs(specs []store.KeySpec) store.Reply {
	r := store.Reply{Kind: store.Set}
	num := func(n int) store.Reply { return store.Int(int64(n)) }
	for _, s := range specs {
		if s.Unknown() {
			r.Elems = append(r.Elems, unknownSpec(s))
			continue
		}
		begin, kind, find := s.Begin, "range", store.MapOf(
			store.Str("lastkey"), num(s.Last), store.Str("keystep"), num(max(s.Step, 1)), store.Str("limit"), num(0))
		if s.NumKeys > 0 {
			begin, kind, find = s.NumKeys, "keynum", store.MapOf(
				store.Str("keynumidx"), num(0), store.Str("firstkey"), num(1), store.Str("keystep"), num(max(s.Step, 1)))
		}
		spec := store.MapOf()
		if s.Notes != "" {
			spec.Elems = append(spec.Elems, store.Str("notes"), store.Str(s.Notes))
		}
		spec.Elems = append(spec.Elems,
			store.Str("flags"), statusSet("", namesOfFlags(s.Flags, keyFlagNames)),
			store.Str("begin_search"), store.MapOf(
				store.Str("type"), store.Str("index"), store.Str("spec"), store.MapOf(store.Str("index"), num(begin))),
			store.Str("find_keys"), store.MapOf(
				store.Str("type"), store.Str(kind), store.Str("spec"), find),
		)
		r.Elems = append(r.Elems, spec)
	}
	return r
}

// unknownSpec returns a key spec without positions.
func unknownSpec(s store.KeySpec) store.Reply {
	unknown := store.MapOf(store.Str("type"), store.Str("unknown"), store.Str("spec"), store.MapOf())
	return store.MapOf(
		store.Str("notes"), store.Str(s.Notes),
		store.Str("flags"), statusSet("", namesOfFlags(s.Flags, keyFlagNames)),
		store.Str("begin_search"), unknown,
		store.Str("find_keys"), unknown,
	)
}
