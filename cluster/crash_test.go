package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
)

// When the power fails in any step of the disk, a single node loses nothing that was acknowledged.
func TestJ18SingleNodeLosesNothing(t *testing.T) {
	clustertest.Slow(t)
	const last = 200
	for at := 17; at < last; at += 9 {
		d := crashdisk.New(t.TempDir(), at)
		d.Quiet = true
		acked := writeUntilDown(t, d, 60)
		if !d.Down() {
			break
		}
		o := crashdisk.Outcomes[at%len(crashdisk.Outcomes)]
		dir := filepath.Join(t.TempDir(), "data")
		if err := d.Image(dir, o); err != nil {
			t.Fatal(err)
		}
		n := openNode(t, dataConfig(t, dir))
		for i := range acked {
			if got := lines(t, n, fmt.Sprintf("GET k%d", i)); got != strings.Repeat("v", 300) {
				t.Fatalf("power failure at step %d (%s), of the unsynced survives %s: k%d of %d acknowledged is %q", at, d.Steps()[at-1], o.Name, i, acked, got)
			}
		}
		if got := lines(t, n, "SET after v"); got != "OK" {
			t.Error(got)
		}
		closeNode(t, n)
	}
}

// writeUntilDown writes keys until the power fails, and returns how many were
// acknowledged.
func writeUntilDown(t *testing.T, d *crashdisk.Disk, most int) (acked int) {
	t.Helper()
	cfg := dataConfig(t, d.Base())
	cfg.disk, cfg.FailoverWait = d.As(), 50*ms
	cfg.Fatal = func(err error) {
		if !errors.Is(err, crashdisk.ErrPower) { // the simulated power failure ends the process
			t.Error(err)
		}
	}
	n, err := Open(cfg)
	if err != nil {
		return 0
	}
	defer n.Close() // what it says of a disk that is gone does not matter
	for acked < most {
		if got := lines(t, n, fmt.Sprintf("SET k%d %s", acked, strings.Repeat("v", 300))); got == "OK" {
			acked++
		} else if d.Down() {
			return acked
		}
		if acked%15 == 14 && n.Snapshot() != nil && d.Down() {
			return acked
		}
	}
	return acked
}
