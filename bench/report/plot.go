package report

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/bench/load"
)

const (
	plotWidth  = 760
	labelWidth = 170
	barHeight  = 18
	lineHeight = 260
	gap        = 14
)

// Each family of peers has its own colours, from dark to light. People who are red-green blind can tell them apart.
var families = []family{
	{ours, []string{"#08306b", "#2171b5", "#6baed6", "#9ecae1"}},
	{func(peer string) bool { return strings.HasPrefix(peer, "red") }, []string{"#7f2704", "#d94801", "#fd8d3c", "#c99700"}},
	{func(string) bool { return true }, []string{"#555555", "#999999", "#bbbbbb"}},
}

type family struct {
	of      func(peer string) bool
	colours []string
}

// paint gives each peer the next colour of its family.
func paint(peers []Peer) map[string]string {
	colour, used := map[string]string{}, make([]int, len(families))
	for _, p := range peers {
		i := slices.IndexFunc(families, func(f family) bool { return f.of(p.Name) })
		colour[p.Name] = families[i].colours[used[i]%len(families[i].colours)]
		used[i]++
	}
	return colour
}

// WriteSVG draws the report.
func (r *Report) WriteSVG(file string) error {
	return os.WriteFile(file, []byte(r.svg()), 0o644)
}

func (r *Report) svg() string {
	p := &plot{colour: paint(r.Peers)}
	for _, panel := range r.panels() {
		p.panel(panel)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n"+
		`<rect width="100%%" height="100%%" fill="white"/>`+"\n%s</svg>\n", plotWidth, p.y+gap, p.b.String())
}

// panel is one frame of the plot with its results.
type panel struct {
	title   string
	results []*Result // results with medians, by peer in the order of the report
	clients []int     // numbers of clients, in ascending order
}

// panels puts results into one panel if they differ only in the number of clients.
func (r *Report) panels() (list []panel) {
	at := map[load.Case]int{}
	for _, res := range r.Results {
		if res.Median == nil {
			continue
		}
		key := res.Case
		key.Clients = 0
		i, ok := at[key]
		if !ok {
			i = len(list)
			at[key] = i
			list = append(list, panel{})
		}
		list[i].results = append(list[i].results, res)
		if !slices.Contains(list[i].clients, res.Clients) {
			list[i].clients = append(list[i].clients, res.Clients)
		}
	}
	for i := range list {
		p := &list[i]
		slices.Sort(p.clients)
		c := p.results[0].Case
		p.title = c.String()
		if len(p.clients) > 1 {
			p.title = strings.Replace(p.title, c.Number(), "over the number of clients", 1)
		}
	}
	return list
}

// plot collects the parts of the picture, which grows downwards.
type plot struct {
	b      strings.Builder
	y      int
	colour map[string]string
}

func (p *plot) text(x, y float64, anchor, text string) {
	fmt.Fprintf(&p.b, `<text x="%.0f" y="%.0f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
}

func (p *plot) panel(in panel) {
	p.y += 2 * gap
	unit := "operations per second; the thin line reaches from the slowest round to the fastest"
	if len(in.clients) > 1 {
		unit = "operations per second; both axes are logarithmic"
	}
	fmt.Fprintf(&p.b, `<text x="%d" y="%d"><tspan font-weight="bold">%s</tspan> <tspan fill="#666">%s</tspan></text>`+"\n",
		gap, p.y, html.EscapeString(in.title), unit)
	p.y += gap
	if len(in.clients) > 1 {
		p.lines(in)
	} else {
		p.bars(in.results)
	}
}

func (p *plot) bars(results []*Result) {
	most := 0.0
	for _, res := range results {
		_, high := spread(res)
		most = max(most, high)
	}
	for _, res := range results {
		at := func(rate float64) float64 { return labelWidth + float64(plotWidth-labelWidth-90)*rate/most }
		middle := float64(p.y) + barHeight*0.7
		p.text(labelWidth-6, middle, "end", res.Peer)
		fmt.Fprintf(&p.b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", labelWidth, p.y, at(res.Median.Rate)-labelWidth, barHeight-4, p.colour[res.Peer])
		low, high := spread(res)
		fmt.Fprintf(&p.b, `<path d="M%.1f,%.1f H%.1f" stroke="#222"/>`+"\n", at(low), float64(p.y)+barHeight/2-2, at(high))
		p.text(at(high)+6, middle, "start", grouped(res.Median.Rate))
		p.y += barHeight
	}
}

// ticks returns 1, 2, 5, 10 and so on, from below the lowest value to above the highest.
func ticks(low, high float64) (list []float64) {
	for power := math.Floor(math.Log10(low)); ; power++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, power)
			if v <= low {
				list = list[:0]
			}
			list = append(list, v)
			if v > high {
				return list
			}
		}
	}
}

// grouped formats a number with commas, such as 15,900.
func grouped(v float64) string {
	text := count(v)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// scale maps the logarithm of a value to a position in the picture.
type scale struct{ low, high, from, to float64 }

func (s scale) at(v float64) float64 {
	return s.from + (math.Log10(v)-s.low)/(s.high-s.low)*(s.to-s.from)
}

func (p *plot) lines(in panel) {
	low, high := math.Inf(1), 0.0
	for _, res := range in.results {
		low, high = min(low, res.Median.Rate), max(high, res.Median.Rate)
	}
	top, bottom := float64(p.y), float64(p.y+lineHeight)
	x := scale{math.Log10(float64(in.clients[0])), math.Log10(float64(in.clients[len(in.clients)-1])), 80, plotWidth - labelWidth}
	marks := ticks(low, high)
	y := scale{math.Log10(marks[0]), math.Log10(marks[len(marks)-1]), bottom, top}
	for _, v := range marks {
		fmt.Fprintf(&p.b, `<line x1="%.0f" y1="%.1f" x2="%.0f" y2="%.1f" stroke="#ddd"/>`+"\n", x.from, y.at(v), x.to, y.at(v))
		p.text(x.from-6, y.at(v)+4, "end", grouped(v))
	}
	for _, n := range in.clients {
		p.text(x.at(float64(n)), bottom+16, "middle", fmt.Sprint(n))
	}
	var ends []label
	for peer, points := range series(in.results) {
		ends = append(ends, p.line(peer, points, x, y))
	}
	for _, l := range apart(ends) {
		fmt.Fprintf(&p.b, `<path d="M%.0f,%.1f L%.0f,%.1f" stroke="%s"/>`+"\n", l.x, l.at, x.to+14, l.y, p.colour[l.peer])
		p.text(x.to+18, l.y+4, "start", l.peer)
	}
	p.y += lineHeight + 2*gap
}

// line draws the results of a peer, and returns the label with its name.
func (p *plot) line(peer string, points []*Result, x, y scale) label {
	width := 1.5
	if ours(peer) {
		width = 3
	}
	end := label{peer: peer}
	var path []string
	for _, res := range points {
		end.x, end.at = x.at(float64(res.Clients)), y.at(res.Median.Rate)
		path = append(path, fmt.Sprintf("%.1f,%.1f", end.x, end.at))
		fmt.Fprintf(&p.b, `<circle cx="%.1f" cy="%.1f" r="%g" fill="%s"/>`+"\n", end.x, end.at, width+1, p.colour[peer])
	}
	fmt.Fprintf(&p.b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%g"/>`+"\n", strings.Join(path, " "), p.colour[peer], width)
	return end
}

// series iterates over the peers, with the results of each by number of clients.
func series(results []*Result) func(yield func(string, []*Result) bool) {
	return func(yield func(string, []*Result) bool) {
		var peers []string
		by := map[string][]*Result{}
		for _, res := range results {
			if by[res.Peer] == nil {
				peers = append(peers, res.Peer)
			}
			by[res.Peer] = append(by[res.Peer], res)
		}
		for _, peer := range peers {
			slices.SortFunc(by[peer], func(a, b *Result) int { return a.Clients - b.Clients })
			if !yield(peer, by[peer]) {
				return
			}
		}
	}
}

// label names a line at its end.
type label struct {
	peer  string
	x, at float64 // where the line ends
	y     float64 // where its name stands
}

const labelHeight = 14

// apart moves labels that would overlap: half of them up, and half of them down.
func apart(labels []label) []label {
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.at, b.at) })
	for from := 0; from < len(labels); {
		// The labels from here on that would touch each other form a block. The block lies around their middle, but below the block
		// before it.
		to, sum := from, 0.0
		var first float64
		for to < len(labels) && (to == from || labels[to].at < first+float64(to-from)*labelHeight) {
			sum += labels[to].at
			to++
			first = sum/float64(to-from) - float64(to-from-1)*labelHeight/2
		}
		if from > 0 && first < labels[from-1].y+labelHeight {
			first = labels[from-1].y + labelHeight
		}
		for i := from; i < to; i++ {
			labels[i].y = first + float64(i-from)*labelHeight
		}
		from = to
	}
	return labels
}
