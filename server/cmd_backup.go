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

// A backup is carried in pieces, each the reply to a command of its own, so that
// it takes no more memory than one of them and as long as its reader likes.

const (
	// backupPiece is the size of a piece.
	backupPiece = 1 << 20
	// backupIdle ends a backup whose reader has gone.
	backupIdle = time.Minute
	// maxBackups is how many may be read at once.
	maxBackups = 4
)

// backups are those that are being read.
type backups struct {
	mu   sync.Mutex
	last int
	open map[string]*openBackup
}

type openBackup struct {
	io.ReadCloser
	idle *time.Timer
	mu   sync.Mutex // held while a piece is read
}

// doBackup is LOCKSTEP BACKUP BEGIN, which returns a name and whether the backup
// is complete, and LOCKSTEP BACKUP READ name, which returns the next piece, an
// empty one at the end.
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
	full := len(b.open) >= maxBackups
	b.mu.Unlock()
	if full {
		return store.Err(errBackups)
	}
	r, complete, err := srv.backend.Backup()
	if err != nil {
		return store.Err(errf("ERR %v", err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = map[string]*openBackup{}
	}
	b.last++
	name := strconv.Itoa(b.last)
	b.open[name] = &openBackup{ReadCloser: r, idle: time.AfterFunc(backupIdle, func() { srv.endBackup(name) })}
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

// endBackup forgets a backup.
func (srv *Server) endBackup(name string) {
	b := &srv.backups
	b.mu.Lock()
	open := b.open[name]
	delete(b.open, name)
	b.mu.Unlock()
	if open != nil {
		open.idle.Stop()
		_ = open.Close() // it is a pipe's end
	}
}
