package growth

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/server/respclient"
)

// besideData are ways to take memory, or to make garbage, on nodes whose data leaves little room.
var besideData = []struct {
	name string
	grow func(i int)
}{
	{"strings of scripts", func(int) {
		beside(6, func(c *respclient.Conn) { c.Do("EVAL", "return string.rep('x',20000000)", "0") })
	}},
	{"tables of scripts", func(int) {
		beside(6, func(c *respclient.Conn) {
			c.Do("EVAL", "for i=1,30 do local t={} for j=1,100000 do t[j]=j..'x' end end", "0")
		})
	}},
	{"published megabytes", func(int) {
		message := strings.Repeat(mega, 7)
		beside(4, func(c *respclient.Conn) { c.Do("PUBLISH", "c", message) })
	}},
	{"megabytes for scripts", func(int) {
		argument := strings.Repeat(mega, 7)
		beside(6, func(c *respclient.Conn) { c.Do("EVAL", "return 1", "0", argument) })
	}},
	{"transactions of large reads", func(int) {
		beside(12, func(c *respclient.Conn) {
			c.Do("MULTI")
			for j := range 13 {
				c.Do("GET", fmt.Sprint("big", j%bigValues))
			}
			c.Do("EXEC")
		})
	}},
	{"little written to large values", func(i int) {
		beside(1, func(c *respclient.Conn) {
			for j := range 200 {
				c.Do("SETRANGE", fmt.Sprint("big", j%bigValues), fmt.Sprint((i*200+j)*997%1000000), "yyyyyyyy")
			}
		})
	}},
	{"small commands of many clients", func(int) {
		beside(700, func(c *respclient.Conn) {
			for range 1024 {
				if c.Send("GET", "none") != nil {
					return
				}
			}
			time.Sleep(100 * time.Millisecond)
		})
	}},
	{"large values that nobody reads", func(int) {
		beside(40, func(c *respclient.Conn) {
			for j := range 20 {
				if c.Send("GET", fmt.Sprint("big", j%bigValues)) != nil {
					return
				}
			}
			time.Sleep(100 * time.Millisecond)
		})
	}},
}

const bigValues = 10

// TestGrowthBesideData: attacks on nodes full of data do not keep other clients from locks, and the nodes can apply the log again.
func TestGrowthBesideData(t *testing.T) {
	each := growthTime(t, time.Second)
	list := start(t, 3)
	c := list[0].Dial()
	must(t, c, "OK", "SET", "mine", "me", "PX", "600000")
	for i := range bigValues {
		must(t, c, "OK", "SET", fmt.Sprint("big", i), mega)
	}
	sets := 0
	for full := false; !full; sets++ {
		_, err := c.Do("EVAL", "for i=1,1000 do redis.call('zadd',KEYS[1]..i,1,'a') end", "1", fmt.Sprint("z", sets, ":"))
		if full = err != nil; full && !strings.Contains(err.Error(), "OOM") {
			t.Fatal(err)
		}
	}
	for i := range 10 { // leaves room for locks
		must(t, c, int64(1000), "EVAL", "local n=0 for i=1,1000 do n=n+redis.call('del',KEYS[1]..i) end return n", "1", fmt.Sprint("z", i, ":"))
	}
	calm := locks(t, list, "calm", func() { time.Sleep(each) })
	for i, kind := range besideData {
		took := locks(t, list, kind.name, func() { attack(t, kind.name, list[i%3].Addr, each) })
		alive(t, list)
		t.Logf("%d,000 sorted sets: %-30s median %v, 99 of 100 within %v (calm %v, %v)", sets, kind.name, took[0], took[1], calm[0], calm[1])
		if limit := max(3*calm[1], 3*time.Second); took[1] > limit {
			t.Errorf("%s: 99 of 100 locks of others within %v, want %v", kind.name, took[1], limit)
		}
	}
	for _, node := range list {
		node.Kill()
	}
	for _, node := range list {
		node.Run()
	}
	for _, node := range list {
		node.WaitReady()
		must(t, node.Dial(), "me", "GET", "mine")
	}
	alive(t, list)
}

// growthTime is how long each kind goes on.
func growthTime(t *testing.T, short time.Duration) time.Duration {
	long := os.Getenv("LOCKSTEP_GROWTH")
	if long == "" {
		return short
	}
	each, err := time.ParseDuration(long)
	if err != nil {
		t.Fatal(err)
	}
	return each
}
