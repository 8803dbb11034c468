package server

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// params are the parameters of CONFIG GET and CONFIG SET. The map values has them as text; the atomics are for readers that must not wait
// for mu.
type params struct {
	// setting has an element during a CONFIG SET, so that none loses the change of another. A CONFIG SET may wait for the leader, so no
	// event loop may wait for setting.
	setting chan struct{}

	mu      sync.Mutex
	defs    map[string]*paramDef // by name and by alias
	names   []string             // the keys of defs, sorted
	values  map[*paramDef]string
	written map[*paramDef]bool // those that the configuration file has

	clientShare        int64 // maxmemory-clients in percent of maxmemory; negative: it is an amount of memory. Guarded by mu
	defaultClientLimit int64 // maxmemory-clients at the start; 0: no limit

	aclLogMax   atomic.Int64
	maxBulk     atomic.Int64
	maxQuery    atomic.Int64
	maxClients  atomic.Int64
	timeout     atomic.Int64 // in seconds
	clientLimit atomic.Int64 // maxmemory-clients in bytes; 0: no limit
	keepAlive   atomic.Int64 // in seconds
	protected   atomic.Bool
	limits      atomic.Pointer[map[string]limit] // by client class
	slowerThan  atomic.Int64                     // in µs; negative: the slow log is off
	slowMax     atomic.Int64
	spikeFrom   atomic.Int64 // in ms; 0: the latency monitor is off
	alarm       atomic.Int64 // in ns; see setAlarm
	untracked   atomic.Bool  // true if latency-tracking is no: the server keeps no distribution of the durations of commands

	minReplicas, maxLag atomic.Int64                 // a number of members, and a time in seconds: see tooFewReplicas
	percentiles         atomic.Pointer[[]percentile] // the percentiles in INFO
}

// paramKind is the form that the values of a parameter have.
type paramKind int

const (
	textParam   paramKind = iota
	intParam              // an integer from paramDef.min to paramDef.max
	memoryParam           // a number with an optional unit; paramDef.min and max are bytes
	boolParam             // yes or no
	enumParam             // one of paramDef.words
)

// paramDef describes a parameter. Without apply and tls, CONFIG SET changes only what is shown, unless the parameter takes effect through
// the leader (shared, requirepass).
type paramDef struct {
	name      string
	alias     string
	kind      paramKind
	min, max  int64
	unsigned  bool // a memoryParam for which Redis takes amounts from 2^63 on: here they count as 2^63-1
	words     []string
	value     string // the default
	fixed     bool   // cannot be changed while the server runs
	protected bool   // cannot be changed because enable-protected-configs is no
	hidden    bool   // CONFIG GET shows it only to a client that gives its name without wildcards
	shared    bool   // has one value for the whole cluster: see params_shared.go
	faced     bool   // the value depends on the listener that the client uses
	check     func(value string) (canonical, fault string)
	apply     func(value string)
	secret    bool                    // params does not store the value, so CONFIG GET shows none
	tls       func(*TLSFiles) *string // returns the field of TLSFiles that the parameter sets; nil for a parameter that sets none
}

func newParams(cfg *Config, backend Backend) *params {
	p := &params{defs: map[string]*paramDef{}, values: map[*paramDef]string{}, setting: make(chan struct{}, 1), defaultClientLimit: cfg.MaxMemoryClients}
	for _, def := range p.table(cfg, backend) {
		p.defs[def.name] = def
		if def.alias != "" {
			p.defs[def.alias] = def
		}
		p.values[def] = def.value
		if def.apply != nil {
			def.apply(def.value)
		}
	}
	for name := range p.defs {
		p.names = append(p.names, name)
	}
	slices.Sort(p.names)
	return p
}

func (p *params) limitOf(class string) limit { return (*p.limits.Load())[class] }

func (p *params) pubsubLimit() limit { return p.limitOf("pubsub") }

// paramSteps bounds the steps of matching for one CONFIG GET. Each match counts triedSteps steps besides those of
// redistext.MatchFoldWithin.
const (
	paramSteps = 1 << 20
	triedSteps = 8
)

// get returns the names and values for CONFIG GET. elsewhere returns the values that p does not store. ok is false beyond paramSteps.
func (p *params) get(patterns [][]byte, elsewhere func([]*paramDef) []string) (list []store.Reply, ok bool) {
	found, ok := p.find(patterns)
	if !ok {
		return nil, false
	}
	list = make([]store.Reply, 0, 2*len(found))
	p.mu.Lock()
	for _, f := range found {
		list = append(list, store.Str(f.shown), store.Str(p.values[f.def]))
	}
	p.mu.Unlock()
	var defs []*paramDef
	var places []int
	for i, f := range found {
		if f.def.shared || f.def.faced {
			defs, places = append(defs, f.def), append(places, 2*i+1)
		}
	}
	for i, value := range elsewhere(defs) { // without mu, because the function elsewhere may wait for the leader
		list[places[i]] = store.Str(value)
	}
	return list, true
}

// foundParam is a parameter that CONFIG GET has found, and the name under which the reply shows it.
type foundParam struct {
	def   *paramDef
	shown string
}

// find returns the parameters for CONFIG GET. ok is false beyond paramSteps.
func (p *params) find(patterns [][]byte) (list []foundParam, ok bool) {
	seen, left := map[string]bool{}, paramSteps
	add := func(name, shown string) {
		if def := p.defs[name]; def != nil && !seen[name] {
			seen[name] = true
			list = append(list, foundParam{def, shown})
		}
	}
	for _, arg := range patterns {
		pattern := string(arg)
		if !strings.ContainsAny(pattern, "[*?") {
			add(strings.ToLower(pattern), pattern)
			continue
		}
		for _, name := range p.names {
			matches, steps := redistext.MatchFoldWithin(pattern, name, left)
			if left -= triedSteps + steps; left < 0 {
				return nil, false
			}
			if matches && !p.defs[name].hidden {
				add(name, name)
			}
		}
	}
	return list, true
}

// change is a valid CONFIG SET.
type change struct {
	defs   []*paramDef
	values []string // in canonical form
	given  []string // as the client wrote them
}

// check validates the arguments of CONFIG SET.
func (p *params) check(pairs [][]byte) (c change, refusal store.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make([]string, 0, len(pairs)/2) // to find names that occur twice; a parameter's name and its alias may both occur
	for i := 0; i < len(pairs); i += 2 {
		name := strings.ToLower(string(pairs[i]))
		def := p.defs[name]
		switch {
		case def == nil:
			return c, errUnknownParam(pairs[i])
		case def.fixed:
			return c, errParam(string(pairs[i]), "can't set immutable config")
		case def.protected:
			return c, errParam(string(pairs[i]), "can't set protected config")
		case slices.Contains(names, name):
			return c, errParam(string(pairs[i]), "duplicate parameter")
		}
		names, c.defs = append(names, name), append(c.defs, def)
	}
	for i, def := range c.defs {
		given := string(pairs[2*i+1])
		if len(given) > maxParamBytes {
			return c, errParam(names[i], faultLong)
		}
		value, fault := def.parse(given, p.values[def])
		if fault != "" {
			return c, errParam(names[i], fault)
		}
		c.values, c.given = append(c.values, value), append(c.given, given)
	}
	return c, ""
}

// commit stores and applies the values of a change that check returned, except those of shared parameters and of secrets.
func (p *params) commit(c change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, def := range c.defs {
		if def.shared || def.secret {
			continue
		}
		p.values[def] = c.values[i]
		if def.apply != nil {
			def.apply(c.values[i])
		}
	}
}

// value returns the value of a parameter as text. The parameter must be neither shared nor faced nor a secret.
func (p *params) value(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values[p.defs[name]]
}

// parse returns the canonical form of a value, or what is wrong with it, as Redis says it. old is the present value.
func (d *paramDef) parse(value, old string) (canonical, fault string) {
	switch d.kind {
	case intParam:
		n, ok := redistext.ParseInt([]byte(value))
		if !ok {
			return "", faultNoInteger
		}
		if canonical, fault = d.inRange(n); fault == "" && d.check != nil {
			return d.check(canonical)
		}
		return canonical, fault
	case memoryParam:
		n, ok := memoryOf(value)
		switch {
		case !ok:
			return "", "argument must be a memory value"
		case n > math.MaxInt64 && !d.unsigned:
			return "", faultRange(d.min, d.max)
		}
		if canonical, fault = d.inRange(int64(min(n, math.MaxInt64))); fault == "" && d.check != nil {
			return d.check(canonical)
		}
		return canonical, fault
	case boolParam:
		switch strings.ToLower(value) {
		case "yes", "no":
			return strings.ToLower(value), ""
		}
		return "", faultNoBool
	case enumParam:
		for _, w := range d.words {
			if strings.EqualFold(w, value) {
				return w, ""
			}
		}
		return "", "argument(s) must be one of the following: " + strings.Join(d.words, ", ")
	}
	if d.name == "client-output-buffer-limit" {
		return mergeLimits(value, old)
	}
	if d.check != nil {
		return d.check(value)
	}
	return value, ""
}

func (d *paramDef) inRange(n int64) (canonical, fault string) {
	if n < d.min || n > d.max {
		return "", faultRange(d.min, d.max)
	}
	return strconv.FormatInt(n, 10), ""
}

// limitClasses are the classes of client-output-buffer-limit, in the order of CONFIG GET. No client is a slave, but clients set that
// limit.
var limitClasses = []string{"normal", "slave", "pubsub"}

// defaultLimits is the default of client-output-buffer-limit.
const defaultLimits = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"

// mergeLimits returns the limits in old, with the classes that occur in value replaced.
func mergeLimits(value, old string) (canonical, fault string) {
	words := strings.Fields(value)
	if len(words)%4 != 0 {
		return "", "Wrong number of arguments in buffer limit configuration."
	}
	all := strings.Fields(old)
	for i := 0; i < len(words); i += 4 {
		class := strings.ToLower(words[i])
		if class == "replica" {
			class = "slave"
		}
		at := slices.Index(limitClasses, class)
		if at < 0 {
			return "", "Invalid client class specified in buffer limit configuration."
		}
		hard, ok1 := store.ParseMemory(words[i+1])
		soft, ok2 := store.ParseMemory(words[i+2])
		secs, err := strconv.Atoi(words[i+3])
		if !ok1 || !ok2 || err != nil || secs < 0 {
			return "", "Error in hard, soft or soft_seconds setting in buffer limit configuration."
		}
		all[at*4+1] = strconv.FormatInt(hard, 10)
		all[at*4+2] = strconv.FormatInt(soft, 10)
		all[at*4+3] = strconv.Itoa(secs)
	}
	return strings.Join(all, " "), ""
}

// applyLimits sets p.limits. value is client-output-buffer-limit in the form that mergeLimits returns.
func (p *params) applyLimits(value string) {
	words := strings.Fields(value)
	limits := map[string]limit{}
	for i := 0; i+3 < len(words); i += 4 {
		limits[words[i]] = limit{hard: number(words[i+1]), soft: number(words[i+2]), softFor: milliseconds(min(number(words[i+3]), math.MaxInt64/1000) * 1000)}
	}
	p.limits.Store(&limits)
}

// number converts a number in canonical form, which is always valid.
func number(canonical string) int64 {
	n, _ := redistext.ParseInt([]byte(canonical))
	return n
}
