package server

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// spikeSamples is how many samples of an event the server keeps.
const spikeSamples = 160

// spike is the worst latency of an event within one second. The field at is that second in Unix time.
type spike struct{ at, ms int64 }

// spikes records commands that took at least latency-monitor-threshold. The event is "fast-command" for commands with the flag store.Fast,
// else "command".
type spikes struct {
	mu     sync.Mutex
	events map[string]*spikeEvent
}

type spikeEvent struct {
	samples []spike // the oldest first
	max     int64
}

func (l *spikes) add(event string, at, ms int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events == nil {
		l.events = map[string]*spikeEvent{}
	}
	e := l.events[event]
	if e == nil {
		e = &spikeEvent{}
		l.events[event] = e
	}
	e.max = max(e.max, ms)
	if n := len(e.samples); n > 0 && e.samples[n-1].at == at {
		e.samples[n-1].ms = max(e.samples[n-1].ms, ms)
		return
	}
	e.samples = append(e.samples, spike{at, ms})
	if len(e.samples) > spikeSamples {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
}

// spikes.of returns the samples of one event, and the event's maximum since LATENCY RESET last forgot the event.
func (l *spikes) of(event string) (samples []spike, worst int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[event]
	if e == nil {
		return nil, 0
	}
	return slices.Clone(e.samples), e.max
}

func (l *spikes) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]string, 0, len(l.events))
	for name := range l.events {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// reset forgets the named events (nil: all), and returns how many it has forgotten.
func (l *spikes) reset(names []string) int {
	if names == nil {
		names = l.names()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, name := range names {
		if l.events[name] != nil {
			delete(l.events, name)
			n++
		}
	}
	return n
}

// durations counts the calls of a command. Bucket i has those of at most 1024 << i ns that no lower bucket has. The last bucket has the
// rest.
type durations [21]atomic.Int64

func (d *durations) add(took time.Duration) {
	i := bits.Len64(uint64(max(took-1, 0)) >> 10)
	d[min(i, len(d)-1)].Add(1)
}

func (d *durations) total() int64 {
	n := int64(0)
	for i := range d {
		n += d[i].Load()
	}
	return n
}

// bound returns the number, in µs, that Redis's LATENCY HISTOGRAM prints for bucket i: its histogram keeps two significant digits.
func bound(i int) int64 {
	ns := int64(1024) << i
	return (ns + ns>>7 - 1) / 1000
}

// histogram returns the entry of one command in LATENCY HISTOGRAM.
func (d *durations) histogram() store.Reply {
	counts := store.MapOf()
	n := int64(0)
	for i := range d {
		if more := d[i].Load(); more > 0 {
			n += more
			counts.Elems = append(counts.Elems, store.Int(bound(i)), store.Int(n))
		}
	}
	return store.MapOf(store.Str("calls"), store.Int(n), store.Str("histogram_usec"), counts)
}

// percentile returns a duration, in µs, that the given share of the calls did not exceed. It is the upper end of a bucket.
func (d *durations) percentile(share float64) float64 {
	total, n := d.total(), int64(0)
	for i := range d {
		n += d[i].Load()
		if n > 0 && float64(n) >= share*float64(total) {
			return float64((int64(1024)<<i)+(int64(1024)<<i)>>7-1) / 1000
		}
	}
	return 0
}

// percentile is a percentile that INFO shows.
type percentile struct {
	name  string
	share float64
}

// maxPercentiles is how many percentiles latency-tracking-info-percentiles may name.
const maxPercentiles = 100

// checkPercentiles returns a value of latency-tracking-info-percentiles in canonical form, or the text of the error if it is
// invalid.
func checkPercentiles(value string) (canonical, fault string) {
	words := strings.Fields(value)
	if len(words) > maxPercentiles {
		return "", "latency-tracking-info-percentiles has too many parameters, for each of which every command has a word in INFO"
	}
	for i, w := range words {
		p, err := strconv.ParseFloat(w, 64)
		switch {
		case err != nil || math.IsNaN(p):
			return "", "Invalid latency-tracking-info-percentiles parameters"
		case p < 0 || p > 100:
			return "", "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
		}
		words[i] = strconv.FormatFloat(p, 'f', 6, 64)
		words[i] = strings.TrimSuffix(strings.TrimRight(words[i], "0"), ".")
	}
	return strings.Join(words, " "), ""
}

// percentilesOf parses a value that checkPercentiles returned.
func percentilesOf(value string) *[]percentile {
	list := []percentile{}
	for _, w := range strings.Fields(value) {
		p, _ := strconv.ParseFloat(w, 64)
		list = append(list, percentile{"p" + w, p / 100})
	}
	return &list
}

// percentiles returns the value in the line of one command in INFO latencystats.
func (d *durations) percentiles(list []percentile) string {
	var words []string
	for _, p := range list {
		words = append(words, fmt.Sprintf("%s=%.3f", p.name, d.percentile(p.share)))
	}
	return strings.Join(words, ",")
}

func doLatencyHistogram(s *session, args [][]byte) store.Reply {
	b := s.build()
	add := func(cmd *store.Command) {
		if c := s.srv.stats.calls[cmd]; c.took.total() > 0 {
			b.add(store.Str(cmd.FullName()), c.took.histogram())
		}
	}
	with := func(cmd *store.Command) {
		add(cmd)
		for i := range cmd.Sub {
			add(&cmd.Sub[i])
		}
	}
	if s.srv.params.untracked.Load() {
		return b.reply(store.Map)
	}
	if len(args) == 2 {
		for _, cmd := range s.srv.table.All() {
			with(cmd)
		}
	}
	for _, name := range args[2:] {
		if cmd := named(s.srv.table, name); cmd != nil && !b.over {
			with(cmd)
		}
	}
	return b.reply(store.Map)
}

func doLatencyLatest(s *session, _ [][]byte) store.Reply {
	r := store.List()
	for _, name := range s.srv.spikes.names() {
		samples, worst := s.srv.spikes.of(name)
		if len(samples) > 0 {
			last := samples[len(samples)-1]
			r.Elems = append(r.Elems, store.List(store.Str(name), store.Int(last.at), store.Int(last.ms), store.Int(worst)))
		}
	}
	return r
}

func doLatencyHistory(s *session, args [][]byte) store.Reply {
	r := store.List()
	samples, _ := s.srv.spikes.of(string(args[2]))
	for _, p := range samples {
		r.Elems = append(r.Elems, store.List(store.Int(p.at), store.Int(p.ms)))
	}
	return r
}

func doLatencyReset(s *session, args [][]byte) store.Reply {
	var names []string
	for _, name := range args[2:] {
		names = append(names, string(name))
	}
	return store.Int(int64(s.srv.spikes.reset(names)))
}

func doLatencyGraph(s *session, args [][]byte) store.Reply {
	name := cString(args[2], len(args[2]))
	samples, worst := s.srv.spikes.of(name)
	if len(samples) == 0 {
		return store.Err(errf("ERR No samples available for event '%s'", name))
	}
	return store.Text(graph(name, samples, worst, s.srv.cfg.Clock().Unix()))
}

// graphRows is the height of a graph, in characters.
const graphRows = 4

// graph draws each sample as a column. Below the column is the age of the sample, written from top to bottom.
func graph(name string, samples []spike, worst, now int64) string {
	low, high := samples[0].ms, samples[0].ms
	for _, p := range samples {
		low, high = min(low, p.ms), max(high, p.ms)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s - high %d ms, low %d ms (all time high %d ms)\n%s\n", name, high, low, worst, strings.Repeat("-", 80))
	for row := int64(graphRows); row > 0; row-- {
		for _, p := range samples {
			height := int64(1)
			if high > low {
				height += (p.ms - low) * (graphRows - 1) / (high - low)
			}
			if row <= height {
				b.WriteByte('#')
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	ages := make([]string, len(samples))
	width := 0
	for i, p := range samples {
		ages[i] = age(now - p.at)
		width = max(width, len(ages[i]))
	}
	for line := range width {
		for _, a := range ages {
			c := byte(' ')
			if line < len(a) {
				c = a[line]
			}
			b.WriteByte(c)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// age prints a number of seconds, rounded down, in the largest unit that gives at least 1, such as 3h.
func age(secs int64) string {
	for _, u := range []struct {
		secs int64
		unit string
	}{{86400, "d"}, {3600, "h"}, {60, "m"}} {
		if secs >= u.secs {
			return fmt.Sprintf("%d%s", secs/u.secs, u.unit)
		}
	}
	return fmt.Sprintf("%ds", max(secs, 0))
}

func doLatencyDoctor(s *session, _ [][]byte) store.Reply {
	threshold := s.srv.params.spikeFrom.Load()
	if threshold == 0 {
		return store.Text("Latency is not being watched on this node. CONFIG SET latency-monitor-threshold <milliseconds> has it record every command that takes at least so long.\n")
	}
	names := s.srv.spikes.names()
	if len(names) == 0 {
		return store.Text(fmt.Sprintf("No command has taken %d ms or more since the latency is being watched.\n", threshold))
	}
	var b strings.Builder
	for _, name := range names {
		samples, worst := s.srv.spikes.of(name)
		sum := int64(0)
		for _, p := range samples {
			sum += p.ms
		}
		fmt.Fprintf(&b, "%s: %d seconds with a latency of at least %d ms, on average %d ms, at worst %d ms.\n",
			name, len(samples), threshold, sum/int64(max(len(samples), 1)), worst)
	}
	b.WriteString("A command's time has the log in it: a slow disk, or a slow way to the other nodes, shows here. SLOWLOG GET names the commands.\n")
	return store.Text(b.String())
}
