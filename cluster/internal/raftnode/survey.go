package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// Survey says what a data directory holds on which no node runs.
type Survey struct {
	ID, Cluster, Directory, LogStore string
	Joining                          bool // the node has yet to become a member

	Term        uint64 // the latest that the node has known
	First, Last uint64 // indexes of the entries in the log; Last is 0 if it has none
	LastTerm    uint64 // that of the last entry
	Reached     uint64 // the index up to which State goes
	Committed   uint64 // up to this index, the node knew that the log was committed

	Members   []Member // of the newest configuration, committed or not
	Snapshots []SnapshotFacts
	Damage    []string // damage that does not keep a node from starting

	State    *raftfsm.FSM
	Contents raftfsm.Contents
}

// SnapshotFacts describe a sound snapshot.
type SnapshotFacts struct {
	ID          string
	Index, Term uint64
	Bytes       int64
}

// SurveyDirectory reads the directory at path and changes nothing in it. held says that the caller holds its LOCK. With all set, it also
// reads what no node needs as long as the newest snapshot is sound.
func SurveyDirectory(ctx context.Context, path string, held, all bool) (s *Survey, err error) {
	v, err := datadir.View(ctx, path, raftLogger(slog.New(slog.DiscardHandler)), held)
	if err != nil {
		return nil, err
	}
	defer func() {
		if ctx.Err() != nil {
			err = errors.New("a signal has ended the command")
		}
		err = errors.Join(err, v.Close())
	}()
	s, err = survey(v.Dir, all)
	if err != nil {
		return nil, v.Blame(v.Unusable(err, fmt.Errorf("data directory %s: %w: %s", path, err, datadir.AdviceRejoin)))
	}
	return s, nil
}

func survey(dir *datadir.Dir, all bool) (s *Survey, err error) {
	s = &Survey{ID: dir.ID(), Cluster: dir.Cluster(), Directory: dir.Name(), LogStore: dir.LogKind(), Joining: dir.Joining()}
	if err := dir.CheckTerm(); err != nil {
		return nil, err
	}
	var faults [3]error
	s.Term, faults[0] = dir.Term()
	s.First, faults[1] = dir.Log.FirstIndex()
	s.Last, faults[2] = dir.Log.LastIndex()
	if err := errors.Join(faults[:]...); err != nil {
		return nil, err
	}
	newest := dir.Snapshots.Newest()
	s.Reached, s.LastTerm = max(s.Last, newest.Index), newest.Term
	if s.Last >= newest.Index && s.Last > 0 {
		if s.LastTerm = dir.Log.TermAt(s.Last); s.LastTerm == 0 {
			return nil, fmt.Errorf("entry %d cannot be read", s.Last)
		}
	}
	s.Committed = min(s.Reached, max(dir.Log.Settled(), newest.Index))
	if err := s.snapshots(dir, all); err != nil {
		return nil, err
	}
	if s.State, err = replayed(dir, s.Reached); err != nil {
		return nil, err
	}
	if all {
		s.earlierEntries(dir, newest.Index)
	}
	for _, m := range dir.Log.ConfigurationBefore(math.MaxUint64).Servers {
		s.Members = append(s.Members, Member{ID: string(m.ID), PeerAddr: string(m.Address), Voter: m.Suffrage == raft.Voter})
	}
	s.Contents = s.State.Contents()
	return s, nil
}

// snapshots lists the snapshots. With all set, it builds the states of those that a start does not read.
func (s *Survey) snapshots(dir *datadir.Dir, all bool) error {
	list, err := dir.Snapshots.List()
	if err != nil {
		return err
	}
	for i, m := range list {
		s.Snapshots = append(s.Snapshots, SnapshotFacts{m.ID, m.Index, m.Term, m.Size})
		if i == 0 || !all {
			continue
		}
		if err := restorable(dir, m.ID, m.Index); err != nil {
			s.Damage = append(s.Damage, fmt.Sprintf("snapshot %s: %v", m.ID, err))
		}
	}
	for _, id := range dir.Snapshots.Unsound() {
		s.Damage = append(s.Damage, fmt.Sprintf("snapshot %s: it is not what was written", id))
	}
	return nil
}

// restorable fails if a snapshot cannot be restored.
func restorable(dir *datadir.Dir, id string, index uint64) error {
	_, in, err := dir.Snapshots.Open(id)
	if err != nil {
		return err
	}
	err = raftfsm.New(nil).Restore(in, index)
	if err == nil {
		_, err = io.Copy(io.Discard, in) // the checksum is compared at the end
	}
	return errors.Join(err, in.Close())
}

// earlierEntries checks the entries of the log that the newest snapshot holds, too.
func (s *Survey) earlierEntries(dir *datadir.Dir, newest uint64) {
	for i := max(s.First, 1); i <= min(s.Last, newest); i++ {
		var l raft.Log
		err := dir.Log.Read(i, &l)
		if err == nil && l.Type == raft.LogCommand {
			_, err = raftfsm.DecodeEntry(l.Data)
		}
		if err == nil && l.Type == raft.LogConfiguration {
			_, err = roster.DecodeConfiguration(l.Data)
		}
		if err != nil {
			s.Damage = append(s.Damage, fmt.Sprintf("entry %d of the log: %v", i, err))
			return
		}
	}
}

// Self returns the node of the directory as a member; ok is false if it is none.
func (s *Survey) Self() (m Member, ok bool) {
	for _, m := range s.Members {
		if m.ID == s.ID {
			return m, true
		}
	}
	return m, false
}
