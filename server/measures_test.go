package server

import (
	"testing"
	"time"
)

// TestCommandFiguresNeverGoBack: CONFIG RESETSTAT sets the figures of INFO to zero, and not those of /metrics.
func TestCommandFiguresNeverGoBack(t *testing.T) {
	srv := newTestServer(t, nil)
	get := srv.table.Lookup([]byte("get"))
	config := srv.table.Lookup([]byte("config"))
	if get == nil || config == nil || len(config.Sub) < 2 {
		t.Fatal("no such commands")
	}
	before := srv.stats.figures(get)
	check := func(when string, calls, timed, quick uint64, sum int64) {
		t.Helper()
		f := srv.stats.figures(get)
		if f.Calls-before.Calls != calls || f.Took.Count-before.Took.Count != timed || f.Took.Upto[0]-before.Took.Upto[0] != quick || f.Took.Sum-before.Took.Sum != sum {
			t.Errorf("%s: %+v", when, f)
		}
	}
	srv.stats.called(get, time.Microsecond)
	srv.stats.called(get, time.Second)
	srv.stats.failed(get, "ERR x")
	srv.stats.rejected(get)
	srv.stats.waited(get)
	want := int64(time.Second + time.Microsecond)
	check("at first", 3, 2, 1, want)
	srv.stats.reset()
	check("after a reset", 3, 2, 1, want)
	if n := srv.stats.calls[get].took.total(); n != 0 {
		t.Errorf("INFO still shows %d calls", n)
	}
	srv.stats.called(get, time.Microsecond)
	srv.stats.reset()
	srv.stats.reset()
	check("after two more", 4, 3, 2, want+int64(time.Microsecond))
	if f := srv.stats.figures(get); f.Failed-before.Failed != 1 || f.Rejected-before.Rejected != 1 || f.Group != "string" || f.Name != "get" {
		t.Errorf("%+v", f)
	}
	all := srv.stats.figures(config).Calls
	srv.stats.called(&config.Sub[0], time.Second)
	srv.stats.called(&config.Sub[1], time.Second)
	if f := srv.stats.figures(config); f.Calls != all+2 || f.Name != "config" {
		t.Errorf("a command with its subcommands: %+v", f)
	}
	seen := 0
	srv.EachCommand(func(f CommandFigures) {
		if f.Name == "get" {
			seen++
		}
		if f.Calls+f.Failed+f.Rejected == 0 || f.Group == "" {
			t.Errorf("%+v", f)
		}
	})
	if seen != 1 {
		t.Errorf("GET is shown %d times", seen)
	}
	if bounds := CommandBounds(); len(bounds) != len(before.Took.Upto) || bounds[0] != 1.024e-6 {
		t.Error(bounds)
	}
}
