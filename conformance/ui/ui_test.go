package ui

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

const hostile = `<img src=x onerror="console.error('run')"><script>console.error('run')</script>`

func do(t *testing.T, c *respclient.Conn, args ...string) any {
	t.Helper()
	reply, err := c.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// cluster starts three nodes with two users, and returns a follower and the nodes.
func cluster(t *testing.T) (follower, leader *nodes.Node, c *respclient.Conn) {
	t.Helper()
	list := nodes.Start(t, 3)
	if leader = nodes.Leader(list); leader == nil {
		t.Fatal("no leader")
	}
	for _, n := range list {
		if n != leader {
			follower = n
		}
	}
	c = follower.Dial()
	do(t, c, "ACL", "SETUSER", "op", "on", ">of op", "~*", "&*", "+@all")
	do(t, c, "ACL", "SETUSER", "viewer", "on", ">of viewer", "~*", "&*", "+lock.list", "+lock.info", "+lock.waiters", "+info", "+lockstep|members", "+psubscribe")
	return follower, leader, c
}

const manyLocks = 100_000

// fill takes manyLocks locks, as SET NX does.
func fill(t *testing.T, c *respclient.Conn) {
	t.Helper()
	const each = 5000
	for from := 0; from < manyLocks; from += each {
		do(t, c, "EVAL", `for i = tonumber(ARGV[1]), tonumber(ARGV[1]) + tonumber(ARGV[2]) - 1 do redis.call('SET', 'order:' .. i, 'host-' .. i % 97, 'NX', 'PX', 3600000 + i) end`,
			"0", fmt.Sprint(from), fmt.Sprint(each))
	}
}

// TestDashboard: a user finds a lock among many and ends it with the keyboard alone. Every page is accessible, light and dark, wide and
// narrow, and shows what strangers wrote as text.
func TestDashboard(t *testing.T) {
	b := start(t)
	rules := axe(t)
	follower, _, c := cluster(t)
	fill(t, c)
	do(t, c, "LOCK.ACQUIRE", "nightly-report", "host-17:4211", "PX", "600000")
	do(t, c, "LOCK.ACQUIRE", hostile, hostile, "PX", "600000")
	waiter := follower.Dial()
	if err := waiter.Send("LOCK.ACQUIRE", "nightly-report", "host-18:99", "PX", "600000", "WAIT", "600000"); err != nil {
		t.Fatal(err)
	}
	url := "http://" + follower.HTTPAddr

	b.look("light", 1100, 720)
	b.logIn(url, "op", "of op")
	b.until("document.getElementById('live').textContent === 'live'")
	b.until("document.querySelector('.figures') !== null")
	for _, path := range []string{"", "locks", "lock?key=nightly-report", "lock?key=" + strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", " ", "+").Replace(hostile), "clients", "cluster", "events"} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1100, 390} {
				b.look(scheme, width, 720)
				b.open(url + "/ui/" + path)
				b.accessible(rules)
				if eval[bool](b, "document.documentElement.scrollWidth > document.documentElement.clientWidth") {
					t.Errorf("/ui/%s: the page is wider than a window of %d pixels", path, width)
				}
			}
		}
	}
	for name, path := range map[string]string{"overview": "", "locks": "locks?sort=waiters&count=50", "lock": "lock?key=nightly-report"} {
		for _, scheme := range []string{"light", "dark"} {
			b.look(scheme, 960, 600)
			b.open(url + "/ui/" + path)
			b.until("document.getElementById('live').textContent === 'live'")
			b.picture("dashboard-" + name + "-" + scheme + ".png")
		}
	}
	b.look("light", 1100, 720)

	// A lock among many, by its name and by a part of the name.
	b.open(url + "/ui/locks")
	if rows := eval[int](b, "document.querySelectorAll('#list tbody tr').length"); rows < 50 || rows > 300 {
		t.Errorf("a page of %d locks", rows)
	}
	b.tab("#q")
	begun := time.Now()
	b.press("order:98765"+kb.Enter, true)
	if first := eval[string](b, "document.querySelector('#list tbody a').textContent"); first != "order:98765" {
		t.Errorf("found %q", first)
	}
	t.Logf("a lock among %d was found in %v", manyLocks, time.Since(begun))

	// The order of all, with the page live: no task of the page takes long.
	b.open(url + "/ui/locks?sort=waiters&count=100")
	if first := eval[string](b, "document.querySelector('#list tbody a').textContent"); first != "nightly-report" {
		t.Errorf("the lock with the most waiters: %q", first)
	}
	longest := eval[float64](b, `new Promise((done) => { let longest = 0, last = performance.now(), until = last + 4000;
		const tick = () => { const now = performance.now(); longest = Math.max(longest, now - last); last = now; now < until ? setTimeout(tick, 0) : done(longest); }; tick(); })`)
	if t.Logf("the page stood still for %.0f ms at most", longest); longest > 1000 {
		t.Errorf("the page froze for %.0f ms", longest)
	}

	// From the first page to the end of a lock, by the keyboard alone.
	b.open(url + "/ui/")
	b.do("Tab", chromedp.KeyEvent(kb.Tab))
	b.tab(".skip")
	b.tab(`nav a[href="/ui/locks"]`)
	b.press(kb.Enter, true)
	b.tab("#q")
	b.press("nightly-report"+kb.Enter, true)
	b.tab("#list tbody a")
	b.press(kb.Enter, true)
	b.tab("#reason")
	b.do("reason", chromedp.KeyEvent("the host is gone"))
	b.tab("button.danger")
	b.press(kb.Enter, true)
	b.until("document.body.innerText.includes('One owner has lost the lock.')")
	if reply, err := waiter.Receive(); err != nil || reply == nil {
		t.Errorf("the waiter got %v, %v", reply, err)
	}
	b.until("document.querySelector('#state').innerText.includes('host-18:99')") // the page is live
}

// TestFewRights: a user without the right to end locks sees no button, and the API says 403.
func TestFewRights(t *testing.T) {
	b := start(t)
	follower, _, c := cluster(t)
	do(t, c, "LOCK.ACQUIRE", "a", "o", "PX", "600000")
	b.logIn("http://"+follower.HTTPAddr, "viewer", "of viewer")
	for path, shown := range map[string]string{"lock?key=a": "#state .figures", "cluster": "#members table"} {
		b.open("http://" + follower.HTTPAddr + "/ui/" + path)
		there, buttons := eval[bool](b, "document.querySelector("+quote(shown)+") !== null"), eval[bool](b, "document.querySelector('main form') !== null")
		if !there || buttons {
			t.Errorf("%s: shown %v, a form %v", path, there, buttons)
		}
	}
	for path, body := range map[string]string{"lock/force": `{"key":"a","reason":"I may not"}`, "cluster/transfer": "{}", "cluster/remove": `{"member":"n1"}`} {
		if got := b.answer("POST", path, body); got != 403 {
			t.Errorf("%s: %d", path, got)
		}
	}
	if do(t, c, "LOCK.CHECK", "a", fmt.Sprint(do(t, c, "LOCK.TOKEN", "a"))) != int64(1) {
		t.Error("the lock is gone")
	}
}

// TestLeaderKilled: a page of a follower is live again within two seconds after the death of the leader.
func TestLeaderKilled(t *testing.T) {
	b := start(t)
	follower, leader, _ := cluster(t)
	b.logIn("http://"+follower.HTTPAddr, "op", "of op")
	b.until("document.getElementById('live').textContent === 'live' && document.body.dataset.refreshed !== undefined")
	leader.Kill()
	begun := time.Now()
	// Live again is: a page that was fetched since shows another leader.
	b.until(`document.getElementById('live').textContent === 'live' && [...document.querySelectorAll('#now tbody tr')].some((row) =>
		row.innerText.includes('leader') && !row.innerText.startsWith(` + quote(leader.ID) + `)) && [...document.querySelectorAll('#now tbody tr')].every((row) =>
		!(row.innerText.startsWith(` + quote(leader.ID) + `) && row.innerText.includes('leader')))`)
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("live again after %v", took)
	} else {
		t.Logf("live again after %v", took)
	}
}

// TestLogout: after a logout, the page leads to the login, and the way back shows nothing.
func TestLogout(t *testing.T) {
	b := start(t)
	follower, _, c := cluster(t)
	url := "http://" + follower.HTTPAddr
	b.logIn(url, "op", "of op")
	b.tab(".who button")
	b.press(kb.Enter, true)
	b.until("location.pathname === '/ui/login'")
	if got := b.answer("GET", "me", ""); got != 401 {
		t.Errorf("after the logout: %d", got)
	}
	b.logIn(url, "op", "of op")
	do(t, c, "ACL", "DELUSER", "op")
	b.until("location.pathname === '/ui/login'") // the open page notices it by itself
}

// TestRedisson: a user ends the lock of a Redisson client by hand, and the Redisson client that waits for it gets it.
func TestRedisson(t *testing.T) {
	b := start(t)
	if _, err := exec.LookPath("mvn"); err != nil {
		missing(t, "mvn")
	}
	follower, _, c := cluster(t)
	run := exec.CommandContext(t.Context(), "mvn", "-B", "-ntp", "-Dstyle.color=never", "-pl", "redisson", "-am", "-DexcludedGroups=", "-Dgroups=dashboard", "-DfailIfNoTests=false", "test")
	run.Dir = "../java"
	run.Env = append(run.Environ(), "LOCKSTEP_ADDRS="+follower.Addr)
	ended := make(chan error, 1)
	var out []byte
	go func() {
		var err error
		out, err = run.CombinedOutput()
		ended <- err
	}()
	const mavenTime = 5 * time.Minute                                                 // Maven may have to load Redisson
	for deadline := time.Now().Add(mavenTime); ; time.Sleep(100 * time.Millisecond) { // another process has to come
		channels, is := do(t, c, "PUBSUB", "NUMSUB", "redisson_lock__channel:{held-by-redisson}").([]any)
		if is && len(channels) == 2 && channels[1] != int64(0) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no Redisson client waits")
		}
		select {
		case err := <-ended:
			t.Fatalf("Redisson has ended: %v\n%s", err, out)
		default:
		}
	}
	b.logIn("http://"+follower.HTTPAddr, "op", "of op")
	b.open("http://" + follower.HTTPAddr + "/ui/lock?key=held-by-redisson")
	owner := eval[string](b, "document.querySelector('#state tbody th').textContent")
	eval[bool](b, "document.getElementById('reason').focus(), true")
	b.press("released by hand"+kb.Enter, true)
	b.until("document.body.innerText.includes('One owner has lost the lock.')")
	b.until("document.querySelector('#state tbody th') !== null && document.querySelector('#state tbody th').textContent !== " + quote(owner))
	t.Logf("%s had the lock, then %s", owner, eval[string](b, "document.querySelector('#state tbody th').textContent"))
	do(t, c, "SET", "seen-by-the-browser", "1")
	if err := <-ended; err != nil {
		t.Errorf("Redisson: %v\n%s", err, out)
	}
}
