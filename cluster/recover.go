package cluster

import (
	"cmp"
	"context"
	"errors"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/store"
)

// Survey says what a data directory holds on which no node runs.
type Survey = raftnode.Survey

// Inspect reads a data directory and changes nothing in it. With all set, it also checks what a start would not read.
func Inspect(ctx context.Context, path string, all bool) (*Survey, error) {
	return raftnode.SurveyDirectory(ctx, path, false, all)
}

// tokenGap is how many tokens the nodes that are lost may have given after the last entry of the survivor.
const tokenGap = 1 << 32

// ErrDeclined is the error of a recovery that the operator has not confirmed.
var ErrDeclined = errors.New("nothing was changed")

// Recovered says what Recover has done.
type Recovered struct {
	*Survey          // what the directory held; nil if an interrupted recovery was only completed
	Kept      string // the directory with the old files
	Addr      string // the peer address of the node
	FirstFree int64  // the tokens of the new cluster are larger
}

// Recover makes a data directory that of a new cluster of one node, with everything that the directory holds, committed or not. It calls the
// function agree with what it has found, and changes nothing unless agree returns true. Of cfg it takes PeerAdvertise, unless that is
// empty, and the time.
func Recover(ctx context.Context, cfg Config, tokensAbove int64, agree func(*Survey) (bool, error)) (done Recovered, err error) {
	r, err := datadir.BeginRecovery(cfg.disk, cfg.Data)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if interrupted, err := r.Interrupted(); err != nil || interrupted {
		if err == nil {
			done.Kept, err = r.Complete()
		}
		return done, err
	}
	s, err := raftnode.SurveyDirectory(ctx, cfg.Data, true, true)
	if err == nil {
		err = s.CheckRecoverable()
	}
	if err != nil {
		return done, err
	}
	self, _ := s.Self()
	done.Survey, done.Addr = s, cmp.Or(cfg.PeerAdvertise, self.PeerAddr)
	if err := raftnode.CheckFounder(done.Addr); err != nil {
		return done, err
	}
	if yes, err := agree(s); err != nil || !yes {
		return done, cmp.Or(err, ErrDeclined)
	}
	done.FirstFree = min(max(tokensAbove, cfg.Time.Wall().UnixMicro(), int64(s.Contents.Token)+tokenGap), store.MaxFirstToken)
	rc := cfg.raft(nil, nil)
	rc.ID, rc.Addr, rc.LogStore = s.ID, done.Addr, s.LogStore
	done.Kept, err = r.Replace(func(path string) error { return raftnode.Recover(rc, path, s, done.FirstFree) })
	return done, err
}
