package raftnode

import (
	"testing"
	"time"
)

// TestSnapshotsThatFreeNothing: the pauses between snapshots that free nothing grow. When a snapshot may free something, the next
// one comes soon.
func TestSnapshotsThatFreeNothing(t *testing.T) {
	const quota, data, entry = 256 << 20, 150 << 20, 300
	now, size := time.Hour, int64(2*data)
	s := shortenings{quota: quota}
	// wait returns how long it takes until the next snapshot is due.
	wait := func(data, log int64) time.Duration {
		began := now
		for !s.due(now, size, data, log) {
			if now += quotaTick; now-began > time.Hour {
				return time.Hour
			}
		}
		return now - began
	}
	if got := wait(data, entry); got != 0 {
		t.Errorf("the first snapshot is due after %v", got)
	}
	for pause := 2 * quotaPause; pause < quotaPauseMost; pause *= 2 {
		s.ended(now, size, size, data)
		if got := wait(data, entry); got <= pause-quotaTick || got > pause+quotaTick {
			t.Errorf("after %v, want %v", got, pause)
		}
	}
	for range 3 {
		s.ended(now, size, size, data)
		if got := wait(data, entry); got > quotaPauseMost+quotaTick {
			t.Errorf("in the end after %v", got)
		}
	}
	s.ended(now, size, size, data)
	if got := wait(data, 0); got != time.Hour {
		t.Errorf("without a new entry after %v", got)
	}
	for what, due := range map[string]func() time.Duration{
		"the log grows":               func() time.Duration { return wait(data, quota/muchShare) },
		"keys are deleted":            func() time.Duration { return wait(data-quota/muchShare, entry) },
		"enough keys are deleted":     func() time.Duration { size = quota + 100; return wait(data-100, entry) },
		"a snapshot has freed much":   func() time.Duration { s.ended(now, size, size-quota/littleShare, data); return wait(data, 0) },
		"the directory was not full":  func() time.Duration { s.due(now, quota, data, entry); return wait(data, entry) },
		"the first one after a start": func() time.Duration { s = shortenings{quota: quota}; return wait(data, 0) },
	} {
		size = 2 * data
		for range 10 {
			s.ended(now, size, size, data)
		}
		if got := due(); got > quotaPause+quotaTick {
			t.Errorf("%s: after %v", what, got)
		}
	}
	if none := (&shortenings{}); none.due(now, size, data, quota) {
		t.Error("without a quota")
	}
}
