// Package datadir keeps what a member of a cluster must not forget: its name, its term and
// its vote, Raft's log, and the snapshots. It is the only package that touches files of the
// data directory:
//
//	LOCK        held with flock(2) while a process uses the directory
//	node.json   whose directory it is, its own name, the members that were met, and
//	            whether its log is complete; see nodeRecord
//	raft.db     Raft's term and vote (bbolt), and the log if --log-store is bolt
//	raft.last   how far the term and the vote have come; see votes.go
//	log/        Raft's log in segments (raft-wal); see segments.go
//	log.last    how far the log reached; see Log
//	log.settled up to where the log is committed; see settled.go
//	snapshots/  the latest two snapshots; see Snapshots
//
// What holds, whenever the process or the machine stops:
//
//   - One process at a time uses a directory, under one id.
//   - A directory that has lost its log, its term or its vote, or a part of them, is
//     refused: a node that forgets what it has acknowledged, or for whom it has voted, can
//     break the majority that it was part of.
//   - An entry is on the disk before this node acknowledges it to a leader, applies it, or
//     tells others that it is committed. A leader may send it earlier.
//   - A damaged end of the log is told apart from a write that a crash has torn. The torn
//     write was never acknowledged and is dropped.
//   - Entries that are committed are not replaced, whoever asks for it.
//   - The log goes back far enough for the older of the two snapshots, in case the newer one
//     is damaged.
//   - A snapshot has its name when all of it is on the disk, and has been checked.
//   - A write to the log that finds no room has changed nothing, and Raft tries it again.
//     The process ends if Raft goes on as if it had succeeded (after a cut, and for a change
//     of members), and after every other failure: it is not known then what is on the disk.
//   - What a newer version has written is refused, and not touched. A log.settled of a newer
//     version says nothing, and is written anew.
//
// Open returns the directory as a Dir. The node that runs on it gives Hooks. A test puts
// another Disk under it: crash_test.go stops the disk at every step of what is done here,
// and starts from what may be left.
package datadir
