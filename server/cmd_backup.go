package server

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// A backup is sent in pieces, each as the reply to one command, so that a slow reader costs the memory of only one piece.

const (
	// BackupPiece is the size of a piece in bytes; only the last piece may be smaller.
	BackupPiece = 1 << 20
	// backupIdle is how long a backup stays open while the client asks for no piece.
	backupIdle = time.Minute
	// BackupMost is how long a backup may stay open in all: while it is open, the node keeps all data that commands overwrite.
	BackupMost = time.Hour
)

// backups has the one backup that clients may read at present.
type backups struct {
	mu      sync.Mutex
	last    int         // the number of the latest backup, which is its name
	open    *openBackup // nil: none
	opening bool        // the backend is beginning a backup
}

type openBackup struct {
	io.ReadCloser
	name string
	by   reader
	from int64 // the id of the session that began the backup; the backup ends with that session
	idle *time.Timer
	most *time.Timer
	mu   sync.Mutex // held while a piece is read
}

// doBackup answers BEGIN with a new backup's name and whether the backup has all acknowledged writes, READ with the next piece, empty
// at the end.
func doBackup(s *session, args [][]byte) store.Reply {
	switch what := string(args[2]); {
	case strings.EqualFold(what, "begin") && len(args) == 3:
		return s.beginBackup(args)
	case strings.EqualFold(what, "read") && len(args) == 4:
		return s.readBackup(string(args[3]))
	default:
		return store.Err(store.ErrSyntax)
	}
}

// reader identifies the client that began a backup. mayTake has compared only this client's unconfirmed password with the backup's
// users. So another client's unconfirmed password must be the same.
type reader struct {
	acc    *account
	authed bool
	unsure string // session.unsure
}

func (s *session) reader() reader { return reader{s.account.Load(), s.authed.Load(), s.unsure} }

// mayRead reports whether the session may read a backup that the client r began. A password that a leader has confirmed may differ from
// r's.
func (s *session) mayRead(r reader) bool {
	now := s.reader()
	return now.acc == r.acc && now.authed == r.authed && (now.unsure == "" || now.unsure == r.unsure)
}

// mayTake returns why the client may not have a backup with these users. The backup may have newer users than this node.
func (s *session) mayTake(users store.Accounts, args [][]byte) (refusal store.Error) {
	a := s.srv.hub.accounts
	u := a.userIn(users, s.userName())
	switch {
	case u == nil, !s.authed.Load() && !u.Open(), s.unsure != "" && !u.HasPassword(s.unsure):
		return store.ErrNoAuth
	}
	cmd, _ := s.srv.table.Resolve(args)
	if why, _, _ := u.CheckSteps(cmd, args); why != store.Allowed {
		return why.Refusal(cmd)
	}
	return ""
}

func (s *session) beginBackup(args [][]byte) store.Reply {
	srv := s.srv
	b := &srv.backups
	b.mu.Lock()
	if b.opening || b.open != nil {
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
	if !complete || s.unsure != "" { // a leader may have answered Backup, but none has confirmed the session's password yet
		if refusal := s.mayTake(r.Users, args); refusal != "" {
			_ = r.Close() // the reading end of a pipe: Close returns no error
			return store.Err(refusal)
		}
	}
	b.last++
	open := &openBackup{ReadCloser: r, name: strconv.Itoa(b.last), by: s.reader(), from: s.id}
	end := func() { srv.endBackup(open) }
	open.idle, open.most = time.AfterFunc(backupIdle, end), time.AfterFunc(BackupMost, end)
	b.open = open
	return store.List(store.Str(open.name), store.Flag(complete))
}

func (s *session) readBackup(name string) store.Reply {
	srv := s.srv
	b := &srv.backups
	b.mu.Lock()
	open := b.open
	b.mu.Unlock()
	if open == nil || open.name != name || !s.mayRead(open.by) {
		return store.Err(errNoBackup)
	}
	open.mu.Lock()
	defer open.mu.Unlock()
	open.idle.Reset(backupIdle)
	piece := make([]byte, BackupPiece)
	n, err := io.ReadFull(open, piece)
	if err != nil {
		if n == 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
			srv.endBackup(open)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return store.Err(errf("ERR %v", err))
		}
	}
	return store.Str(string(piece[:n]))
}

// leaveBackup ends the backup that the session has begun, if it is still open.
func (srv *Server) leaveBackup(s *session) {
	b := &srv.backups
	b.mu.Lock()
	open := b.open
	b.mu.Unlock()
	if open != nil && open.from == s.id {
		srv.endBackup(open)
	}
}

// endBackup closes and forgets a backup, if that has not been done: readBackup, leaveBackup and both timers may call it for the same
// backup.
func (srv *Server) endBackup(open *openBackup) {
	b := &srv.backups
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != open {
		return
	}
	b.open = nil
	open.idle.Stop()
	open.most.Stop()
	_ = open.Close() // the reading end of a pipe: Close returns no error
}
