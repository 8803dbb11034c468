// Package audit keeps the events of locks in files, and checks such files.
//
// A directory has these files:
//
//	locks-00000001.jsonl   events as JSON, one a line (history.Event.AppendJSON); the number grows by one
//	position               the number of the write set up to which the files have all events
//	LOCK                   held with flock(2) while a process writes to the directory
//
// A node may end at any time. When it starts again, it applies the entries after its latest snapshot once more, and so finds events that the
// files have already: these are left out. If the snapshot is newer than the position, events are missing, and a line of the event gap says so.
package audit
