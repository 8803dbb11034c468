package report

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/bench/load"
)

// Report has the results of a run.
type Report struct {
	Command string    `json:"command"`
	When    time.Time `json:"when"`
	Machine Machine   `json:"machine"`
	Rounds  int       `json:"rounds"`
	For     string    `json:"for"`
	Fsync   Fsync     `json:"fdatasync"`
	Peers   []Peer    `json:"peers"`
	Results []*Result `json:"results"`
}

// Machine describes where the run took place.
type Machine struct {
	CPUs       int    `json:"cpus"`
	System     string `json:"system"`
	Go         string `json:"go"`
	Dir        string `json:"dir"`
	FileSystem string `json:"file_system"`
}

// Memory reports whether the data are on a RAM disk.
func (m Machine) Memory() bool { return strings.HasPrefix(m.FileSystem, "tmpfs") }

// Fsync is how long a sync of a block takes, measured in each round.
type Fsync struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
}

// Peer is a peer that the options asked for. Skipped says why it was not measured.
type Peer struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Version string `json:"version,omitempty"`
	Skipped string `json:"skipped,omitempty"`
}

// Result has all rounds of a case for a peer, or says why there are none.
type Result struct {
	load.Case
	Peer    string  `json:"peer"`
	Skipped string  `json:"skipped,omitempty"`
	Failed  string  `json:"failed,omitempty"`
	Broken  int     `json:"broken,omitempty"` // turns that were repeated, because the peer had ended a connection
	Turns   []Turn  `json:"turns,omitempty"`
	Median  *Figure `json:"median,omitempty"`
}

// Turn has the results of one round.
type Turn struct {
	Seconds float64 `json:"seconds"`
	Ops     int     `json:"ops"`
	Figure
}

// Figure has the values of a turn, or their medians over all turns. A value of -1 could not be measured.
type Figure struct {
	Rate       float64 `json:"ops_per_second"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	P999       float64 `json:"p999_us"`
	ServerCPU  float64 `json:"server_cpu_us_per_op"`
	ClientCPU  float64 `json:"client_cpu_us_per_op"`
	ClientPart float64 `json:"client_share_of_machine"`
	Disk       float64 `json:"disk_bytes_per_op"`
	Wire       float64 `json:"client_wire_bytes_per_op"`
	Between    float64 `json:"bytes_between_servers_per_op"`
	Fairness   float64 `json:"fairness"`
	Wait       float64 `json:"wait_mean_us"` // until a client has the lock for which others wait, too
	WaitP99    float64 `json:"wait_p99_us"`
	Memory     float64 `json:"memory_bytes_per_lock"` // of a server, for each lock that is held in addition to the measured ones
	Calm       float64 `json:"calm_p99_us"`           // of operations before the leases end
	Gone       float64 `json:"gone_us"`
}

// parts returns pointers to the figure's values, always in the same order.
func (f *Figure) parts() []*float64 {
	return []*float64{&f.Rate, &f.P50, &f.P99, &f.P999, &f.ServerCPU, &f.ClientCPU, &f.ClientPart, &f.Disk, &f.Wire, &f.Between, &f.Fairness, &f.Wait, &f.WaitP99, &f.Memory, &f.Calm, &f.Gone}
}

// Settle computes the medians.
func (r *Result) Settle() {
	if len(r.Turns) == 0 {
		return
	}
	r.Median = &Figure{}
	for i, p := range r.Median.parts() {
		var list []float64
		for _, t := range r.Turns {
			list = append(list, *t.parts()[i])
		}
		*p = load.Median(list)
	}
}

// Micros returns a duration in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// WriteJSON writes all results to a file.
func (r *Report) WriteJSON(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// Read reads what WriteJSON has written.
func Read(file string) (*Report, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(Report)
	return r, json.Unmarshal(b, r)
}

// median returns a peer's medians in a case; nil if the case was not measured, or failed in a round.
func (r *Report) median(peer string, c load.Case) *Figure {
	for _, res := range r.Results {
		if res.Peer == peer && res.Case == c && res.Failed == "" { // if a round has failed, the rounds before it say little
			return res.Median
		}
	}
	return nil
}

// cases returns the cases of the results, in the order of the results.
func (r *Report) cases() (list []load.Case) {
	seen := map[load.Case]bool{}
	for _, res := range r.Results {
		if !seen[res.Case] {
			seen[res.Case] = true
			list = append(list, res.Case)
		}
	}
	return list
}

// of returns the results of a case.
func (r *Report) of(c load.Case) (list []*Result) {
	for _, res := range r.Results {
		if res.Case == c {
			list = append(list, res)
		}
	}
	return list
}
