package peers

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestCPUTime(t *testing.T) {
	// This is the text of a /proc/PID/stat of Linux. The name of the process, "a) b (c", was chosen to be hard to parse.
	const stat = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 1357 0 0 0 123 45 0 0 20 0 9 0 1158 1263353856 3500 18446744073709551615"
	if got, err := cpuTime(stat); err != nil || got != 1680*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "1 (a) S", "1 (a) S 1 1 1 0 -1 0 0 0 0 0 x y"} {
		if got, err := cpuTime(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestSectorBytes(t *testing.T) {
	const stat = " 2102314   232112 56370570  1774183 88496260  2045248 731510664 10555560        0  6116036 16586924\n"
	if got, err := sectorBytes(stat); err != nil || got != 731510664*512 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := sectorBytes("1 2 3"); err == nil {
		t.Errorf("got %v", got)
	}
}

func TestResidentPages(t *testing.T) {
	if got, err := residentPages("308436 13812 3170 1630 0 25318 0\n"); err != nil || got != 13812 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := residentPages(""); err == nil {
		t.Errorf("got %v", got)
	}
}

func TestSentBy(t *testing.T) {
	const list = `0 0 127.0.0.1:6379 127.0.0.1:49214 users:(("redis-server",pid=11,fd=8)) cubic rto:204 bytes_sent:90 bytes_acked:90 bytes_received:7
0 0 127.0.0.1:6379 127.0.0.1:49216 users:(("redis-server",pid=12,fd=8)) cubic bytes_sent:4 bytes_acked:4
0 0 127.0.0.1:49214 127.0.0.1:6379 users:(("lockstep",pid=13,fd=3)) cubic bytes_sent:1000
0 0 127.0.0.1:7 127.0.0.1:8 cubic bytes_sent:5000
0 0 127.0.0.1:9 127.0.0.1:8 users:(("redis-server",pid=11,fd=9)) cubic rto:200
`
	if got := sentBy(list, map[int]bool{11: true, 12: true}); got != 94 {
		t.Errorf("got %d, want 94", got)
	}
}

// If a value was unknown before, the difference is unknown, too.
func TestUsageMinus(t *testing.T) {
	before := Usage{CPU: time.Second, Written: -1, Sent: 10}
	after := Usage{CPU: 3 * time.Second, Written: 5, Sent: 25}
	if got, want := after.Minus(before), (Usage{CPU: 2 * time.Second, Written: -1, Sent: 15}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestPlus(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	if got := plus(time.Hour, os.Getpid()); got < time.Hour {
		t.Errorf("this process: %v", got)
	}
	if got := plus(time.Hour, -5); got != -1 {
		t.Errorf("no process: %v", got)
	}
	if got := plusResident(5, os.Getpid()); got <= 5 {
		t.Errorf("this process has %v", got)
	}
	if got := plus(-1, os.Getpid()); got != -1 {
		t.Errorf("behind one that is unknown: %v", got)
	}
}

func TestParseSrvr(t *testing.T) {
	const answer = "Zookeeper version: 3.8.0-2+deb12, built on x\nLatency min/avg/max: 0/0.0/0\nMode: leader\nNode count: 5\n"
	if leads, version := parseSrvr(answer); !leads || version != "3.8.0" {
		t.Errorf("%v, %q", leads, version)
	}
	if leads, _ := parseSrvr("This ZooKeeper instance is not currently serving requests\n"); leads {
		t.Error("it leads")
	}
}
