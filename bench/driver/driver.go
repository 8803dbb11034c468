package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/peers"
	"github.com/lockstep-io/lockstep/bench/report"
	"github.com/lockstep-io/lockstep/conformance/environ"
)

// Run measures the peers, or reads the file of --from, and writes the tables to w. A failed measurement does not end the run.
func (o *Options) Run(ctx context.Context, w, progress io.Writer) (err error) {
	if o.From != "" {
		r, err := report.Read(o.From)
		if err != nil {
			return err
		}
		return o.publish(r, w)
	}
	p, err := o.plan()
	if err != nil {
		return err
	}
	if err := environ.RaiseFiles(p.files()); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(p.Dir, "lockstep-bench")
	if err != nil {
		return err
	}
	if !o.Keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	r := &runner{plan: p, progress: progress, site: &peers.Site{Dir: dir, Lockstep: p.Lockstep, Port: p.Port}}
	r.report = report.Report{Command: o.Command, When: time.Now().UTC(), Machine: machine(dir), Rounds: p.Rounds, For: p.For.String()}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(); err != nil {
		return err
	}
	// An interrupt stops the servers at once, even in the middle of a measurement.
	breakOff := context.AfterFunc(ctx, func() { _ = r.stop() }) // the deferred stop returns the errors
	defer breakOff()
	if err := r.measure(ctx); err != nil {
		return err
	}
	return r.finish(w)
}

// runner is a run under way.
type runner struct {
	*plan
	progress io.Writer
	site     *peers.Site
	systems  []*peers.System
	syncs    []time.Duration
	report   report.Report
	results  map[*peers.System]map[load.Case]*report.Result
}

// start starts all peers. They run until the end of the run.
func (r *runner) start() error {
	r.results = map[*peers.System]map[load.Case]*report.Result{}
	for _, kind := range r.kinds {
		about := report.Peer{Name: kind.Name, About: kind.About}
		s, err := kind.Start(r.site)
		switch {
		case errors.Is(err, peers.ErrNotInstalled):
			about.Skipped = err.Error()
			fmt.Fprintf(r.progress, "%s is left out: %v\n", kind.Name, err)
		case err != nil:
			return err
		default:
			about.Version = s.Version
			r.systems = append(r.systems, s)
			r.results[s] = map[load.Case]*report.Result{}
			fmt.Fprintf(r.progress, "%s %s runs\n", s.Name, s.Version)
		}
		r.report.Peers = append(r.report.Peers, about)
	}
	if len(r.systems) == 0 {
		return errors.New("none of the peers is installed")
	}
	for _, c := range r.cases {
		for _, s := range r.systems {
			if !r.wants(s.Name, c) {
				continue
			}
			res := &report.Result{Case: c, Peer: s.Name, Skipped: s.Lacks(c)}
			r.results[s][c] = res
			r.report.Results = append(r.report.Results, res)
		}
	}
	return nil
}

func (r *runner) stop() (err error) {
	for _, s := range r.systems {
		err = errors.Join(err, s.Stop())
	}
	return err
}

// measure gives each peer a turn in each case of each round. Each round begins
// with another peer.
func (r *runner) measure(ctx context.Context) error {
	for round := range r.Rounds {
		syncs, err := syncTimes(r.site.Dir)
		if err != nil {
			return err
		}
		r.syncs = append(r.syncs, syncs...)
		for _, c := range r.cases {
			for i := range r.systems {
				s := r.systems[(i+round)%len(r.systems)]
				res := r.results[s][c]
				if res == nil || res.Skipped != "" || res.Failed != "" {
					continue
				}
				t, err := r.playOut(ctx, s, c, res)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				r.keep(res, t, err)
			}
			fmt.Fprintf(r.progress, "round %d of %d: %v\n", round+1, r.Rounds, c)
		}
	}
	return nil
}

// attempts is how often a turn is tried at most.
const attempts = 3

// playOut repeats a turn in which the peer has ended a connection. ZooKeeper's own client would hide that by a new connection.
func (r *runner) playOut(ctx context.Context, s *peers.System, c load.Case, res *report.Result) (t report.Turn, err error) {
	for range attempts - 1 {
		if t, err = r.play(s, c); err == nil || !broken(err) || ctx.Err() != nil {
			return t, err
		}
		res.Broken++
		fmt.Fprintf(r.progress, "%s: %v: once more: %v\n", res.Peer, res.Case, err)
	}
	return r.play(s, c)
}

// broken reports whether a peer has ended a connection.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// keep records the figures of a turn, or its error.
func (r *runner) keep(res *report.Result, t report.Turn, err error) {
	if err != nil {
		res.Failed = err.Error()
		fmt.Fprintf(r.progress, "%s: %v failed: %v\n", res.Peer, res.Case, err)
		return
	}
	res.Turns = append(res.Turns, t)
}

// taken is what the servers and clients have used so far.
type taken struct {
	servers        peers.Usage
	clients        time.Duration
	sent, received int64
}

// weigh returns the counts so far.
func weigh(s *peers.System) (taken, error) {
	cpu, err := ownCPU()
	return taken{s.Usage(), cpu, s.Traffic.Sent(), s.Traffic.Received()}, err
}

// play measures one case. It deletes the peer's locks before and after, lest they expire while another peer is measured.
func (r *runner) play(s *peers.System, c load.Case) (t report.Turn, err error) {
	if err := s.Reset(); err != nil {
		return report.Turn{}, err
	}
	defer func() { err = errors.Join(err, s.Reset()) }()
	workload, err := load.Find(c.Workload)
	if err != nil {
		return report.Turn{}, err
	}
	held, err := load.OpenHeld(s.At(load.Leader), c.Alive, s.Pipelines())
	if err != nil {
		return report.Turn{}, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	memory, err := r.hold(s, c, held)
	if err != nil {
		return report.Turn{}, err
	}
	var before, after taken
	out, err := load.Run(r.spec(workload, c, s.Pipelines()), s.At(c.At),
		func() (err error) { before, err = weigh(s); return err },
		func() (err error) { after, err = weigh(s); return err })
	if err != nil {
		return report.Turn{}, err
	}
	t = figures(out, before, after, r.report.Machine.CPUs)
	t.Memory = memory
	return t, nil
}

// spec describes the measurement of a case.
func (p *plan) spec(workload load.Workload, c load.Case, pipelines bool) load.Spec {
	return load.Spec{Workload: workload, Clients: c.Clients, Pipeline: c.Pipeline, Token: c.Token, Rate: c.Rate,
		Locks: p.Locks, Queues: c.Queues, Within: p.Within, Warm: p.Warm, For: p.For, Pipelines: pipelines}
}

// With fewer locks than enough, their memory is lost in what a server allocates anyway.
const enough = 10_000

// hold takes the locks that are held besides the measured ones. It returns a server's bytes for each; -1: unknown.
func (r *runner) hold(s *peers.System, c load.Case, held *load.Held) (float64, error) {
	if c.Alive < enough {
		return -1, held.Take()
	}
	before, err := s.Memory()
	if err != nil {
		return 0, err
	}
	if err := held.Take(); err != nil {
		return 0, err
	}
	after, err := s.Memory()
	if err != nil || before < 0 || after < 0 {
		return -1, err
	}
	return max(0, float64(after-before)) / float64(c.Alive*s.Servers()), nil
}

// figures computes the reported figures of a turn from the counts.
func figures(out load.Outcome, before, after taken, cpus int) report.Turn {
	ops := float64(out.AllOps) // CPU time and bytes were counted for all of them
	slices.Sort(out.Latencies)
	used := after.servers.Minus(before.servers)
	received := after.received - before.received
	clients := after.clients - before.clients
	f := report.Figure{
		Rate:       float64(out.Ops) / out.Elapsed.Seconds(),
		P50:        report.Micros(load.Quantile(out.Latencies, 0.5)),
		P99:        report.Micros(load.Quantile(out.Latencies, 0.99)),
		P999:       report.Micros(load.Quantile(out.Latencies, 0.999)),
		ServerCPU:  -1,
		ClientCPU:  report.Micros(clients) / ops,
		ClientPart: clients.Seconds() / (out.Whole.Seconds() * float64(cpus)),
		Disk:       -1,
		Wire:       float64(after.sent-before.sent+received) / ops,
		Between:    -1,
		Fairness:   load.Fairness(out.PerClient),
		Wait:       -1,
		WaitP99:    -1,
		Memory:     -1,
		Calm:       -1,
		Gone:       -1,
	}
	if len(out.Calm) > 0 {
		slices.Sort(out.Calm)
		f.Calm, f.Gone = report.Micros(load.Quantile(out.Calm, 0.99)), report.Micros(out.Gone)
	}
	if len(out.Waits) > 0 {
		slices.Sort(out.Waits)
		f.Wait, f.WaitP99 = report.Micros(load.Mean(out.Waits)), report.Micros(load.Quantile(out.Waits, 0.99))
	}
	if used.CPU >= 0 {
		f.ServerCPU = report.Micros(used.CPU) / ops
	}
	if used.Written >= 0 {
		f.Disk = float64(used.Written) / ops
	}
	if used.Sent >= 0 {
		// What the servers sent and the clients did not receive went from server to server.
		f.Between = max(0, float64(used.Sent-received)) / ops
	}
	return report.Turn{Seconds: out.Elapsed.Seconds(), Ops: out.Ops, Figure: f}
}

// finish computes the medians and reports.
func (r *runner) finish(w io.Writer) (err error) {
	slices.Sort(r.syncs)
	r.report.Fsync = report.Fsync{P50: report.Micros(load.Quantile(r.syncs, 0.5)), P99: report.Micros(load.Quantile(r.syncs, 0.99))}
	for _, res := range r.report.Results {
		res.Settle()
		if res.Failed != "" {
			err = errors.Join(err, fmt.Errorf("%s: %v: %s", res.Peer, res.Case, res.Failed))
		}
	}
	return errors.Join(err, r.publish(&r.report, w))
}

// publish writes the report wherever the options want it.
func (o *Options) publish(r *report.Report, w io.Writer) error {
	err := r.WriteTable(w)
	if o.JSON != "" {
		err = errors.Join(err, r.WriteJSON(o.JSON))
	}
	if o.SVG != "" {
		err = errors.Join(err, r.WriteSVG(o.SVG))
	}
	if file, section, ok := strings.Cut(o.Markdown, "#"); ok {
		err = errors.Join(err, r.WriteMarkdown(file, section))
	}
	if o.Claims {
		err = errors.Join(err, r.Missed())
	}
	return err
}
