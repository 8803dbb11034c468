// Package datadir keeps what a member of a cluster must not forget: its name, its term and
// its vote, Raft's log, and the snapshots. It is the only package that touches files of the
// data directory:
//
//	LOCK        held with flock(2) while a process uses the directory
//	node.json   the node's id, the directory's name, the members that the node has met,
//	            and whether the log is complete; see nodeRecord
//	raft.db     Raft's term and vote (bbolt), and the log if --log-store is bolt
//	raft.last   the latest term and vote, to check raft.db against; see votes.go
//	log/        Raft's log in segments (raft-wal); see segments.go
//	log.last    the index of the log's last entry; see Log
//	log.settled the index up to which the log is committed; see settled.go
//	snapshots/  the latest two snapshots; see Snapshots
//	RESTORING   while a backup is restored into the directory; see restore.go
//	RECOVERING  while lockstep recover replaces the contents; see recover.go
//
// These rules hold, whenever the process or the machine stops:
//
//   - One process at a time uses a directory, under one id.
//   - Open refuses a directory that has lost its log, its term or its vote, or a part of
//     them: a node that forgets an acknowledged entry or a vote can break the majority that
//     it was part of.
//   - Open refuses a directory into which a backup was restored in part.
//   - An entry is on the disk before this node acknowledges it to a leader, applies it, or
//     tells others that it is committed. There is one exception, which does no harm: a leader
//     that sends an entry before the entry is on the leader's own disk, and then loses its lead,
//     may acknowledge that entry to the next leader too early (see asyncWrites).
//   - Open distinguishes a damaged end of the log from a write that a crash has torn (see Log). It does so
//     by log.last, and only as far as log.last had reached the disk. A torn write was never
//     acknowledged, and is dropped.
//   - Open refuses a log of raft-wal in which a bit has changed (seal.go). The entries in bbolt are
//     checked when they are read, and so is the type of every entry (entrysum.go).
//   - Open refuses a file of bbolt whose damaged pages would make bbolt panic (boltcheck.go).
//   - Open makes a new directory only where there is nothing of an old one.
//   - The log does not replace committed entries, not even for a leader, unless the newest
//     snapshot holds them (see settled.go).
//   - The log goes back far enough for the older of the two snapshots, in case the newer one
//     is damaged. Only a snapshot from a peer may replace the whole log.
//   - A snapshot gets its final name when all of it is on the disk and has been checked.
//   - A write to the log that finds no disk space changes nothing, and the node goes on: a leader
//     steps down, and a follower gets the entries again. But the process ends where Raft would go
//     on as if the write had succeeded (the first append after a cut of the log's end, and a
//     leader's append of a change of the members). The process also ends after every other failed
//     append or cut, because the content of the disk is unknown then.
//   - Open refuses files of a newer version, and does not change them. Only a log.settled of
//     a newer version is ignored and written anew.
//
// Open returns the directory as a Dir. The running node passes Hooks to it. A test passes another
// Disk: crash_test.go stops the disk at every step of this package, and opens each directory that
// a crash may leave.
package datadir
