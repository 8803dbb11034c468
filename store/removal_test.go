package store

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// many creates a list l, a set s and a sorted set z of n elements.
func many(d *testDB, n int) {
	list, set, scores := []string{"RPUSH", "l"}, []string{"SADD", "s"}, []string{"ZADD", "z"}
	for i := range n {
		name := fmt.Sprint("m", i)
		list, set, scores = append(list, name), append(set, name), append(scores, fmt.Sprint(i), name)
	}
	for _, call := range [][]string{list, set, scores} {
		d.do(call...)
	}
}

// TestRemovalsAreWatched: a command that removes many elements can be stopped before it writes.
func TestRemovalsAreWatched(t *testing.T) {
	d := newTestDB(t)
	many(d, 10_000)
	for _, call := range []string{
		"LTRIM l 0 10", "LPOP l 9000", "RPOP l 9000", "LMPOP 1 l LEFT COUNT 9000", "SPOP s 9000", "ZPOPMIN z 9000", "ZMPOP 1 z MAX COUNT 9000",
		"ZREMRANGEBYRANK z 0 9000", "ZREMRANGEBYSCORE z 0 9000", "ZREMRANGEBYLEX z - +",
	} {
		ctx := d.ctx(d.begin(), strings.Fields(call)...)
		ctx.Watch = func() { panic("stopped") }
		func() {
			defer func() {
				if p := recover(); p != "stopped" {
					t.Errorf("%s: %v", call, p)
				}
			}()
			ctx.Cmd.Run(ctx)
		}()
		if n := ctx.Writes().Len(); n > 0 {
			t.Errorf("%s was stopped, and has written %d times", call, n)
		}
	}
}

// TestTrimOfAllElements: if no element stays, LTRIM removes the list as a whole. It used to copy every node of the tree first.
func TestTrimOfAllElements(t *testing.T) {
	d := newTestDB(t)
	many(d, 10_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := d.do("LTRIM", "l", "1", "0")
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<10 || got != "+OK" {
		t.Errorf("%s, and took %d bytes", got, took)
	}
	if got := d.do("EXISTS", "l"); got != ":0" {
		t.Errorf("EXISTS: %s", got)
	}
}
