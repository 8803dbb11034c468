package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/bench/load"
)

// example returns a report of two workloads, one of them with several numbers of clients.
func example() *Report {
	r := &Report{Command: "lockstep bench --clients 1,50", When: time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC), Machine: Machine{CPUs: 2, System: "Linux 6", Go: "go1.26", Dir: "/data", FileSystem: "ext4"}, Rounds: 3, For: "1s", Fsync: Fsync{P50: 250, P99: 1900},
		Peers: []Peer{{Name: "redis", About: "one Redis", Version: "7.0.15"}, {Name: "etcd", About: "three etcd", Skipped: "not installed <here>"}, {Name: "lockstep-1", About: "one", Version: "0.1.0"}}}
	add := func(c load.Case, peer string, rates ...float64) *Result {
		res := &Result{Case: c, Peer: peer}
		for _, rate := range rates {
			res.Turns = append(res.Turns, Turn{Seconds: 1, Ops: int(rate), Figure: Figure{Rate: rate, P50: rate / 10, P99: 2500, P999: 3e6, ServerCPU: 12, ClientPart: 0.25, Disk: -1, Fairness: 1, Wait: -1, WaitP99: -1, Memory: 100, Calm: -1, Gone: -1}})
		}
		res.Settle()
		r.Results = append(r.Results, res)
		return res
	}
	for _, n := range []int{50, 1} {
		add(load.Case{Workload: "cycle", Clients: n, Pipeline: 1}, "redis", 3000, 1000, float64(2000*n))
		add(load.Case{Workload: "cycle", Clients: n, Pipeline: 1}, "lockstep-1", 1500)
	}
	add(load.Case{Workload: "rlock", Clients: 50, Pipeline: 16}, "redis", 400).Broken = 2
	add(load.Case{Workload: "rlock", Clients: 50, Pipeline: 16}, "lockstep-1").Failed = "a lock & a half"
	add(load.Case{Workload: "rlock", Clients: 50, Pipeline: 16}, "redlock").Skipped = "it is not Redisson's"
	return r
}

func TestSettle(t *testing.T) {
	m := example().Results[0].Median
	if m.Rate != 3000 || m.P50 != 300 || m.Disk != -1 || m.Fairness != 1 {
		t.Errorf("%+v", m)
	}
	none := new(Result)
	if none.Settle(); none.Median != nil {
		t.Error("a median of nothing")
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := example().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"fdatasync of 4 KiB p50 250µs, p99 1.90ms", "medians of 3 interleaved rounds of 1s",
		"etcd        -        three etcd; left out: not installed <here>", "redis       7.0.15   one Redis", "2026-11-21 22:00 UTC",
		"\ncycle, 50 clients\n", "\ncycle, 1 client\n", "\nrlock, 50 clients, pipelined 16\n",
		"3000  (1000-100000)  300µs  2.50ms  3.00s     12.0",
		"lockstep-1: ops/s 0.50 x redis (CPU 1.00 x) (memory 1.00 x)\n", "lockstep-1 failed: a lock & a half\n", "redlock is not measured: it is not Redisson's\n",
		"redis ended connections in 2 more turns; those do not count\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, b.String())
		}
	}
}

func TestJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	if err := example().WriteJSON(file); err != nil {
		t.Fatal(err)
	}
	got, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, example()) {
		t.Errorf("read %+v, written was %+v", got, example())
	}
	if _, err := Read(file + ".not"); err == nil {
		t.Error("read what is not there")
	}
}

func TestSVG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.svg")
	if err := example().WriteSVG(file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(string(b))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
	// The plot has two lines, each over 1 and 50 clients. Its rectangles are the background and one bar: a failed result has no
	// bar.
	if count["polyline"] != 2 || count["circle"] != 4 || count["rect"] != 2 {
		t.Errorf("%v", count)
	}
	text := string(b)
	for _, want := range []string{"cycle, over the number of clients", "rlock, 50 clients, pipelined 16", ">2,000<", ">400<", ">lockstep-1<"} {
		if !strings.Contains(text, want) {
			t.Errorf("the plot does not say %q", want)
		}
	}
}

func TestScale(t *testing.T) {
	s := scale{low: 2, high: 4, from: 300, to: 100}
	for v, want := range map[float64]float64{100: 300, 1000: 200, 10000: 100} {
		if got := s.at(v); got != want {
			t.Errorf("%v is at %v, want %v", v, got, want)
		}
	}
}

// The names of lines that end at the same place are moved apart, so that they can be read. All other names stay at their lines.
func TestApart(t *testing.T) {
	place := func(ends ...float64) (places []float64) {
		var labels []label
		for _, at := range ends {
			labels = append(labels, label{at: at, y: at})
		}
		for _, l := range apart(labels) {
			places = append(places, l.y)
		}
		return places
	}
	for _, c := range []struct{ ends, want []float64 }{
		{[]float64{100, 10}, []float64{10, 100}},
		{[]float64{11, 9}, []float64{3, 17}},
		{[]float64{50, 50, 50, 90}, []float64{36, 50, 64, 90}},
		{[]float64{50, 50, 70}, []float64{50 - 14 + 20.0/3, 50 + 20.0/3, 64 + 20.0/3}},
		{[]float64{20, 40, 41, 42}, []float64{20, 34, 48, 62}},
	} {
		if got := place(c.ends...); !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("ends at %v have names at %v, want %v", c.ends, got, c.want)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      []float64
	}{
		{3, 30, []float64{2, 5, 10, 20, 50}},
		{100, 100, []float64{100, 200}},
		{670, 15900, []float64{500, 1000, 2000, 5000, 10000, 20000}},
	} {
		if got := ticks(c.low, c.high); !slices.Equal(got, c.want) {
			t.Errorf("from %v to %v: %v, want %v", c.low, c.high, got, c.want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 15900.4: "15,900", 1234567: "1,234,567"} {
		if got := grouped(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

// No two peers have the same colour, in whatever order they come.
func TestPaint(t *testing.T) {
	colour := paint([]Peer{{Name: "etcd"}, {Name: "redis"}, {Name: "lockstep-1"}, {Name: "redlock"}, {Name: "lockstep-3"}, {Name: "zookeeper"}})
	seen := map[string]string{}
	for peer, c := range colour {
		if seen[c] != "" || c == "" {
			t.Errorf("%s has the colour %q of %s", peer, c, seen[c])
		}
		seen[c] = peer
	}
	if len(seen) != 6 {
		t.Errorf("%v", colour)
	}
}

// A column without any known value is not shown.
func TestColumns(t *testing.T) {
	r := example()
	c := r.Results[0].Case
	head := func() string { return strings.Join(r.caseTable(c).head, " ") }
	if got, want := head(), " ops/s (rounds) p50 p99 p99.9 servers clients share wire between fair memory"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Results[0].Median.Wait, r.Results[0].Median.WaitP99 = 700, 800
	if got, want := head(), " ops/s (rounds) p50 p99 p99.9 wait p99 wait servers clients share wire between fair memory"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if rows := r.caseTable(c).rows; rows[0][6] != "700µs" || rows[0][7] != "800µs" || rows[1][6] != "-" {
		t.Errorf("%q", rows)
	}
	r.Results[0].Median.Wait, r.Results[0].Median.WaitP99 = -1, -1
	r.Results[0].Median.Gone, r.Results[0].Median.Calm = 120_000, 900
	r.Results[1].Median.Disk = 7
	if got, want := head(), " ops/s (rounds) p50 p99 p99.9 calm p99 gone servers clients share disk wire between fair memory"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	rows := r.caseTable(c).rows
	if len(rows) != 2 || rows[0][7] != "120.00ms" || rows[1][7] != "-" || rows[0][6] != "900µs" {
		t.Errorf("%q", rows)
	}
}
