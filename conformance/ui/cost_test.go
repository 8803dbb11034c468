package ui

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

var rounds = flag.Int("rounds", 0, "how many times TestCost measures 50 clients, in turn with and without an open page on each node")

// TestCost measures what open pages cost the clients of three nodes. What stands for a page does what the script of the pages does: it
// reads the stream of events, and fetches the page again once a second. A browser would take the processors of the nodes on one machine.
func TestCost(t *testing.T) {
	if *rounds == 0 {
		t.Skip("-rounds says how often to measure")
	}
	list := nodes.Start(t, 3)
	var cycles atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer end()
	for i := range 50 {
		c := list[i%len(list)].Dial()
		clients.Go(func() {
			lock := fmt.Sprint("lock-", i)
			for ctx.Err() == nil {
				if _, err := c.Do("SET", lock, "me", "NX", "PX", "30000"); err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Do("DELIFEQ", lock, "me"); err != nil {
					t.Error(err)
					return
				}
				cycles.Add(1)
			}
		})
	}
	measure := func() (rate, cpu float64) {
		time.Sleep(2 * time.Second) // to warm up
		begun, before, busy := time.Now(), cycles.Load(), processorTime(t, list)
		time.Sleep(8 * time.Second)
		done := float64(cycles.Load() - before)
		return done / time.Since(begun).Seconds(), (processorTime(t, list) - busy) / done * 1e6
	}
	var without, with, ratios, cpuWithout, cpuWith []float64
	for range *rounds {
		a, cpuA := measure()
		open, closePages := context.WithCancel(ctx)
		var pages sync.WaitGroup
		for i, n := range list {
			page := []string{"/ui/", "/ui/locks", "/ui/lock?key=lock-7"}[i]
			pages.Go(func() { watch(t, open, n, page) })
		}
		b, cpuB := measure()
		closePages()
		pages.Wait()
		without, with, ratios = append(without, a), append(with, b), append(ratios, b/a)
		cpuWithout, cpuWith = append(cpuWithout, cpuA), append(cpuWith, cpuB)
	}
	for _, s := range [][]float64{without, with, ratios, cpuWithout, cpuWith} {
		slices.Sort(s)
	}
	t.Logf("cycles per second without pages: %.0f (median; %.0f to %.0f), with: %.0f (%.0f to %.0f); with/without: %.3f (%.3f to %.3f)", middle(without), without[0], without[len(without)-1],
		middle(with), with[0], with[len(with)-1], middle(ratios), ratios[0], ratios[len(ratios)-1])
	t.Logf("processor time of the nodes per cycle without pages: %.1f us (median; %.1f to %.1f), with: %.1f us (%.1f to %.1f)", middle(cpuWithout), cpuWithout[0], cpuWithout[len(cpuWithout)-1],
		middle(cpuWith), cpuWith[0], cpuWith[len(cpuWith)-1])
}

// processorTime returns the seconds of processor time that the nodes have used. On a busy machine, they say more than the throughput.
func processorTime(t *testing.T, list []*nodes.Node) (seconds float64) {
	for _, n := range list {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.Process().Pid))
		if err != nil {
			t.Error(err)
			return 0
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, at := range []int{11, 12} { // utime and stime, in hundredths of a second
			ticks, err := strconv.ParseFloat(fields[at], 64)
			if err != nil {
				t.Error(err)
			}
			seconds += ticks / 100
		}
	}
	return seconds
}

func middle(sorted []float64) float64 {
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// watch does what an open page does.
func watch(t *testing.T, ctx context.Context, n *nodes.Node, page string) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Error(err)
		return
	}
	client := &http.Client{Jar: jar}
	defer client.CloseIdleConnections()
	get := func(method, path, body string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, method, "http://"+n.HTTPAddr+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return nil
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Lockstep-Live", "1")
		resp, err := client.Do(r)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return nil
		}
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
		return resp
	}
	if resp := get(http.MethodPost, "/api/v1/login", `{"user":"default","password":""}`); resp != nil {
		resp.Body.Close()
	}
	stream := get(http.MethodGet, "/api/v1/events", "")
	if stream == nil {
		return
	}
	defer stream.Body.Close()
	go func() { _, _ = io.Copy(io.Discard, stream.Body) }() // it ends with ctx
	for {
		begun := time.Now()
		if resp := get(http.MethodGet, page, ""); resp != nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		select {
		case <-time.After(max(time.Second, 50*time.Since(begun))): // as the script does
		case <-ctx.Done():
			return
		}
	}
}
