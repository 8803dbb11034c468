package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-io/lockstep/bench/load"
)

// table is a table before it is written as text or as Markdown.
type table struct {
	head []string
	rows [][]string
}

func (t table) writeText(w io.Writer, align uint) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', align)
	end := "" // the last cell of a row is aligned only if a tab ends it
	if align == tabwriter.AlignRight {
		end = "\t"
	}
	for _, row := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(tw, strings.Join(row, "\t")+end)
	}
	return tw.Flush()
}

// writeMarkdown aligns all columns but the first to the right.
func (t table) writeMarkdown(w *strings.Builder) {
	for i, row := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(w, "|", strings.Join(row, " | "), "|")
		if i == 0 {
			fmt.Fprintln(w, "|---|"+strings.Repeat("---:|", len(row)-1))
		}
	}
}

// WriteTable writes the report as text.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", r.about())
	if err := r.peerTable().writeText(w, 0); err != nil {
		return err
	}
	for _, c := range r.cases() {
		fmt.Fprintf(w, "\n%s\n", c)
		if err := r.caseTable(c).writeText(w, tabwriter.AlignRight); err != nil {
			return err
		}
		for _, line := range r.notes(c) {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	fmt.Fprintf(w, "\n%s\n", legend)
	t := r.checkTable()
	if len(t.rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	err := t.writeText(w, 0)
	if rest := r.unmeasured(); len(rest) > 0 {
		fmt.Fprintf(w, "%d more claims were not measured\n", len(rest))
	}
	return err
}

// about says where and how the run was made.
func (r *Report) about() string {
	return fmt.Sprintf("%d CPUs, %s, %s; data in %s (%s); fdatasync of 4 KiB p50 %s, p99 %s\nmedians of %d interleaved rounds of %s; %s", r.Machine.CPUs,
		r.Machine.System, r.Machine.Go, r.Machine.Dir, r.Machine.FileSystem, micros(r.Fsync.P50), micros(r.Fsync.P99), r.Rounds, r.For, r.When.Format("2006-01-02 15:04 MST"))
}

func (r *Report) peerTable() table {
	t := table{head: []string{"peer", "version", "what it is"}}
	for _, p := range r.Peers {
		if p.Skipped != "" {
			t.rows = append(t.rows, []string{p.Name, "-", p.About + "; left out: " + p.Skipped})
			continue
		}
		t.rows = append(t.rows, []string{p.Name, p.Version, p.About})
	}
	return t
}

const legend = `What the columns say:

- ops/s: operations per second, and the slowest and fastest round.
- p50, p99, p99.9: latency of an operation. It begins with the operation, with its pipeline if there is one, or when the operation was due if
  a rate is offered.
- wait, p99 wait: mean and p99 of the time until a client had the lock for which others waited, too. The operation goes on until the
  lock is released.
- servers, clients: microseconds of CPU per operation, of all servers of the system measured, and of the load generator; share: how much of
  the whole machine the load generator took.
- disk, wire, between: bytes per operation that were written to disk, that went over the clients' connections, and that the servers sent
  each other.
- fair: Jain's index of what the clients got; 1 is the same for all.
- memory: bytes by which one server grows per held lock.
- gone: from the end of the last lease until all were deleted; calm p99: p99 before the first lease ended.
- "-": not measured, or without meaning here.
- "X: ops/s 2 x Y": X does twice as many operations per second as Y. In parentheses: the CPU time of its servers per operation, and its memory, as multiples of those of Y.`

// column is a column of a case's table.
type column struct {
	name string
	show func(*Result) string
}

// known makes a column of a value that may be unknown.
func known(name, format string, value func(*Figure) float64) column {
	return column{name, func(res *Result) string {
		v := value(res.Median)
		if v < 0 {
			return "-"
		}
		return fmt.Sprintf(format, v)
	}}
}

// timed makes a column of a time that may be unknown.
func timed(name string, value func(*Figure) float64) column {
	return column{name, func(res *Result) string {
		v := value(res.Median)
		if v < 0 {
			return "-"
		}
		return micros(v)
	}}
}

var columns = []column{
	{"", func(res *Result) string { return res.Peer }},
	{"ops/s", func(res *Result) string { return count(res.Median.Rate) }},
	{"(rounds)", rounds},
	timed("p50", func(f *Figure) float64 { return f.P50 }),
	timed("p99", func(f *Figure) float64 { return f.P99 }),
	timed("p99.9", func(f *Figure) float64 { return f.P999 }),
	timed("wait", func(f *Figure) float64 { return f.Wait }),
	timed("p99 wait", func(f *Figure) float64 { return f.WaitP99 }),
	timed("calm p99", func(f *Figure) float64 { return f.Calm }),
	timed("gone", func(f *Figure) float64 { return f.Gone }),
	known("servers", "%.1f", func(f *Figure) float64 { return f.ServerCPU }),
	known("clients", "%.1f", func(f *Figure) float64 { return f.ClientCPU }),
	known("share", "%.0f%%", func(f *Figure) float64 { return 100 * f.ClientPart }),
	known("disk", "%.0f", func(f *Figure) float64 { return f.Disk }),
	known("wire", "%.0f", func(f *Figure) float64 { return f.Wire }),
	known("between", "%.0f", func(f *Figure) float64 { return f.Between }),
	known("fair", "%.2f", func(f *Figure) float64 { return f.Fairness }),
	known("memory", "%.0f", func(f *Figure) float64 { return f.Memory }),
}

func rounds(res *Result) string {
	low, high := spread(res)
	return fmt.Sprintf("(%s-%s)", count(low), count(high))
}

// spread returns the rates of the slowest and the fastest round.
func spread(res *Result) (low, high float64) {
	low = math.Inf(1)
	for _, t := range res.Turns {
		low, high = min(low, t.Rate), max(high, t.Rate)
	}
	return low, high
}

// caseTable returns a case's table, with the columns for which at least one value is known.
func (r *Report) caseTable(c load.Case) (t table) {
	results := slices.DeleteFunc(r.of(c), func(res *Result) bool { return res.Median == nil })
	t.rows = make([][]string, len(results))
	for _, col := range columns {
		cells, any := make([]string, len(results)), false
		for i, res := range results {
			cells[i] = col.show(res)
			any = any || cells[i] != "-"
		}
		if !any {
			continue
		}
		t.head = append(t.head, col.name)
		for i, cell := range cells {
			t.rows[i] = append(t.rows[i], cell)
		}
	}
	return t
}

// notes returns what a case's table cannot say: what is missing and why, and the ratios between systems.
func (r *Report) notes(c load.Case) (lines []string) {
	results := r.of(c)
	for _, res := range results {
		if res.Broken > 0 {
			lines = append(lines, fmt.Sprintf("%s ended connections in %d more turns; those do not count", res.Peer, res.Broken))
		}
		switch {
		case res.Failed != "":
			lines = append(lines, fmt.Sprintf("%s failed: %s", res.Peer, res.Failed))
		case res.Skipped != "":
			lines = append(lines, fmt.Sprintf("%s is not measured: %s", res.Peer, res.Skipped))
		}
	}
	return append(lines, ratios(results)...)
}

func count(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

// micros formats microseconds with a unit that suits them.
func micros(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.2fs", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.2fms", us/1e3)
	}
	return fmt.Sprintf("%.0fµs", us)
}

func ratios(results []*Result) (lines []string) {
	others := slices.DeleteFunc(slices.Clone(results), func(r *Result) bool { return r.Median == nil || ours(r.Peer) })
	for _, res := range results {
		if res.Median == nil || !ours(res.Peer) || len(others) == 0 {
			continue
		}
		var texts []string
		for _, o := range others {
			text := fmt.Sprintf("%.2f x %s", res.Median.Rate/o.Median.Rate, o.Peer)
			if res.Median.ServerCPU > 0 && o.Median.ServerCPU > 0 {
				text += fmt.Sprintf(" (CPU %.2f x)", res.Median.ServerCPU/o.Median.ServerCPU)
			}
			if res.Median.Memory > 0 && o.Median.Memory > 0 {
				text += fmt.Sprintf(" (memory %.2f x)", res.Median.Memory/o.Median.Memory)
			}
			texts = append(texts, text)
		}
		lines = append(lines, fmt.Sprintf("%s: ops/s %s", res.Peer, strings.Join(texts, ", ")))
	}
	return lines
}

func ours(peer string) bool { return strings.HasPrefix(peer, "lockstep") }
