package lock

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// asleep is how long the machine seems to have slept in the time namespace of TestClockCountsSleep.
const asleep = 100_000 * time.Second

// TestClockCountsSleep: the clock is the one of /proc/uptime, which counts the time in which the machine was asleep and follows no wall
// clock. In a time namespace that clock can be put forward beside the monotonic one, as sleep does.
func TestClockCountsSleep(t *testing.T) {
	uptime := func() time.Duration {
		text, err := os.ReadFile("/proc/uptime")
		var seconds float64
		if _, wrong := fmt.Sscan(string(text), &seconds); err != nil || wrong != nil {
			t.Fatal(err, wrong)
		}
		return time.Duration(seconds * float64(time.Second))
	}
	before := uptime()
	now := System{}.Now()
	if after := uptime() + 20*time.Millisecond; now < before || now > after {
		t.Errorf("the clock shows %v, and /proc/uptime %v to %v", now, before, after)
	}
	alarm, err := System{}.NewAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer alarm.Close()
	for _, d := range []time.Duration{-time.Hour, 0, 30 * time.Millisecond} {
		at := System{}.Now() + d
		alarm.Set(at)
		select {
		case <-alarm.C():
		case <-time.After(10 * time.Second):
			t.Fatalf("no alarm after %v", d)
		}
		if early := at - (System{}).Now(); early > 0 {
			t.Errorf("the alarm came %v too early", early)
		}
	}
	const inside = "LOCK_INSIDE"
	if os.Getenv(inside) != "" {
		if now < asleep {
			t.Errorf("the machine was asleep for %v, and the clock shows %v", asleep, now)
		}
		return
	}
	cmd := exec.Command("unshare", "--time", "--fork", "--boottime", fmt.Sprint(int(asleep.Seconds())), os.Args[0], "-test.run", "^TestClockCountsSleep$")
	if exec.Command("unshare", "--time", "--fork", "--boottime", "1", "true").Run() != nil {
		t.Skip("this user, kernel or unshare(1) makes no time namespaces")
	}
	cmd.Env = append(os.Environ(), inside+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in a time namespace: %v\n%s", err, out)
	}
}
