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

// The server sends a backup in pieces, each as the reply to one command. So the node needs memory for only one piece, even
// if the client reads slowly.

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

// doBackup answers LOCKSTEP BACKUP BEGIN with the name of a new backup and whether that backup holds all
// acknowledged writes. It answers LOCKSTEP BACKUP READ name with the next piece; an empty piece is the end.
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

// reader identifies the client that began a backup. Another client may read that backup only if it has the same user,
// and only if either both clients have authenticated or neither has. The backup may also have been begun with a
// password that no leader has confirmed. mayTake has then compared only that password with the users in the backup, so
// another client whose password is unconfirmed must have the same one.
type reader struct {
	acc    *account
	authed bool
	unsure string // session.unsure
}

func (s *session) reader() reader { return reader{s.account.Load(), s.authed.Load(), s.unsure} }

// mayRead reports whether the session may read a backup that the client r began. If a leader has confirmed the
// session's password by now (session.unsure is ""), that password may differ from the password of r.
func (s *session) mayRead(r reader) bool {
	now := s.reader()
	return now.acc == r.acc && now.authed == r.authed && (now.unsure == "" || now.unsure == r.unsure)
}

// mayTake returns why the client may not have a backup; "" if it may. The argument users has the users in the state
// that the backup holds. If the node finds no leader, the backup may hold newer entries than this node has applied.
// These entries may have taken rights from the client, or may ask for a password.
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
