package server

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockstep/store"
)

// The server sends a backup in pieces, each as the reply to one command. So a backup takes the memory
// of one piece only, and its reader may be slow.

const (
	// backupPiece is the size of a piece.
	backupPiece = 1 << 20
	// backupIdle is how long a backup stays open for a reader that asks for no piece.
	backupIdle = time.Minute
	// backupMost is how long it stays open in all: as long as it is open, the node keeps what has been overwritten since.
	backupMost = time.Hour
)

// backups holds the backups that clients are reading.
type backups struct {
	mu      sync.Mutex
	last    int
	open    map[string]*openBackup
	opening bool
}

type openBackup struct {
	io.ReadCloser
	idle *time.Timer
	most *time.Timer
	mu   sync.Mutex // held while a piece is read
}

// doBackup answers LOCKSTEP BACKUP BEGIN with a name and whether the backup is complete, and LOCKSTEP
// BACKUP READ name with the next piece; an empty piece is the end.
func doBackup(s *session, args [][]byte) store.Reply {
	switch what := string(args[2]); {
	case strings.EqualFold(what, "begin") && len(args) == 3:
		return s.srv.beginBackup()
	case strings.EqualFold(what, "read") && len(args) == 4:
		return s.srv.readBackup(string(args[3]))
	default:
		return store.Err(store.ErrSyntax)
	}
}

func (srv *Server) beginBackup() store.Reply {
	b := &srv.backups
	b.mu.Lock()
	if b.opening || len(b.open) > 0 {
		b.mu.Unlock()
		return store.Err(errBackups)
	}
	b.opening = true
	b.mu.Unlock()
	r, complete, err := srv.backend.Backup()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opening = false
	if err != nil {
		return store.Err(errf("ERR %v", err))
	}
	if b.open == nil {
		b.open = map[string]*openBackup{}
	}
	b.last++
	name := strconv.Itoa(b.last)
	end := func() { srv.endBackup(name) }
	b.open[name] = &openBackup{ReadCloser: r, idle: time.AfterFunc(backupIdle, end), most: time.AfterFunc(backupMost, end)}
	return store.List(store.Str(name), store.Flag(complete))
}

func (srv *Server) readBackup(name string) store.Reply {
	b := &srv.backups
	b.mu.Lock()
	open := b.open[name]
	b.mu.Unlock()
	if open == nil {
		return store.Err(errNoBackup)
	}
	open.mu.Lock()
	defer open.mu.Unlock()
	open.idle.Reset(backupIdle)
	piece := make([]byte, backupPiece)
	n, err := io.ReadFull(open, piece)
	if err != nil {
		if n == 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
			srv.endBackup(name)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return store.Err(errf("ERR %v", err))
		}
	}
	return store.Str(string(piece[:n]))
}

// endBackup closes and forgets a backup.
func (srv *Server) endBackup(name string) {
	b := &srv.backups
	b.mu.Lock()
	open := b.open[name]
	delete(b.open, name)
	b.mu.Unlock()
	if open != nil {
		open.idle.Stop()
		open.most.Stop()
		_ = open.Close() // the reading end of a pipe
	}
}
