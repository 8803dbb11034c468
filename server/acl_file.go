package server

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// An ACL file (aclfile) belongs to one node; users belong to the cluster. Only a new cluster, ACL LOAD and ACL SAVE use the file.

// maxACLFile is the maximum size of an ACL file in bytes.
const maxACLFile = 4 << 20

// Clients can send ACL LOAD only without arguments, because of its arity. The server itself sends it with these arguments:
//
//	ACL LOAD version HASH again [NAME RULES]...   returns the version of the users. HASH is the hash of the password
//	                                              that the asking node was started with. It may become the default
//	                                              user's password; store.Txn.EstablishPassword says when, and explains
//	                                              "again". NAME and RULES are the users of the asking node's ACL file.
//	                                              If the users of the cluster were never set, the cluster may take
//	                                              these (store.Txn.EstablishUsers)
//	ACL LOAD users [NAME RULES]...                replaces the users of the cluster. NAME and RULES are the new ones
const (
	aclLoadVersion = "version"
	aclLoadAgain   = "again"
	aclLoadUsers   = "users"
)

// hasUsers reports whether the command table of this server has ACL LOAD; that of a Sentinel listener does not.
func (srv *Server) hasUsers() bool {
	cmd, ok := srv.table.Resolve([][]byte{[]byte("acl"), []byte("load"), []byte(aclLoadVersion)})
	return ok && cmd.Run != nil
}

// usersVersion asks the leader for the version of the users. It offers the node's password and, until the node has caught up, its ACL
// users.
func (srv *Server) usersVersion() store.Reply {
	again, current := "", srv.hub.accounts.current.Load()
	if s := srv.backend.Status(); s.Role == cluster.Leader && srv.backend.Topology().Members <= 1 && !current {
		again = aclLoadAgain
	}
	args := [][]byte{[]byte("acl"), []byte("load"), []byte(aclLoadVersion), []byte(passwordHash(srv.cfg.RequirePass)), []byte(again)}
	if !current {
		args = appendUsers(args, srv.cfg.ACLUsers)
	}
	cmd, ok := srv.table.Resolve(args)
	if !ok || !srv.hasUsers() {
		return store.Err(errBadCommand)
	}
	return srv.backend.Submit([]cluster.Call{{Cmd: cmd, Args: args, RESP: 2, User: store.SystemUser}}, nil)[0]
}

func appendUsers(args [][]byte, users []*store.User) [][]byte {
	for _, u := range users {
		args = append(args, []byte(u.Name), []byte(u.Packed()))
	}
	return args
}

// usersIn is the inverse of appendUsers.
func usersIn(c *store.Ctx, from int) (users []store.PackedUser) {
	for i := from; i+1 < len(c.Args); i += 2 {
		users = append(users, store.PackedUser{Name: c.Arg(i), Rules: c.Arg(i + 1)})
	}
	return users
}

// runACLLoad is the leader's part of ACL LOAD. The form "users" runs with the client's rights, never as the system user (readCall).
func runACLLoad(c *store.Ctx) store.Reply {
	switch {
	case len(c.Args) <= 2:
		return store.Err(errNoACLFile)
	case c.Arg(2) == aclLoadUsers:
		if refusal := c.ReplaceUsers(c.Cmd.Table(), usersIn(c, 3)); refusal != "" {
			return store.Err(refusal)
		}
		return store.OK
	case c.Arg(2) != aclLoadVersion:
		return store.Err(store.ErrSyntax)
	}
	hash := ""
	if len(c.Args) > 3 {
		hash = c.Arg(3)
	}
	if refusal := c.EstablishUsers(usersIn(c, 5)); refusal != "" {
		return store.Err(refusal)
	}
	c.EstablishPassword(c.Cmd.Table(), hash, len(c.Args) > 4 && c.Arg(4) == aclLoadAgain)
	return store.Int(int64(c.AccountsVersion()))
}

// doACLLoad reads the file and asks the leader to replace the cluster's users with the users in the
// file.
func doACLLoad(s *session, args [][]byte) store.Reply {
	if s.srv.cfg.ACLFile == "" {
		return store.Err(errNoACLFile)
	}
	if refusal := s.stillMay(args); refusal != "" {
		return store.Err(refusal)
	}
	channels, _ := s.srv.backend.Config(store.ParamChannels)
	var users []*store.User
	var err error
	if !s.paced(func() {
		users, err = ReadACLFile(s.srv.cfg.ACLFile, s.srv.table, strings.EqualFold(channels, "allchannels"))
	}) {
		return store.Err(errLeft)
	}
	if err != nil {
		return store.Err(store.Error("ERR " + oneLine(err.Error())))
	}
	cmd, _ := s.srv.table.Resolve(args)
	call := s.call(cmd, appendUsers([][]byte{[]byte("acl"), []byte("load"), []byte(aclLoadUsers)}, users))
	r := s.askLeader(call)
	switch {
	case r.Kind == store.Integer:
		return store.Err(errACLOlder) // a leader of an older release does not know the form "users": it has answered the form "version"
	case !r.IsError() && r.Kind != store.Noted:
		s.srv.catchUp()
	}
	return s.settle(r)
}

// stillMay returns why the client may not use this node's ACL file. It checks by the leader's users, because the leader itself checks
// too late.
func (s *session) stillMay(args [][]byte) (refusal store.Error) {
	if _, refusal := s.srv.catchUpOr(); refusal != "" {
		return refusal
	}
	cmd, _ := s.srv.table.Resolve(args)
	if refusal = s.mayRun(cmd, args); refusal != "" {
		s.noteRefusal(cmd, args, refusal)
	}
	return refusal
}

func oneLine(s string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(s) }

// doACLSave writes the users of the cluster to this node's ACL file, and deletes leftovers of earlier crashes.
func doACLSave(s *session, args [][]byte) store.Reply {
	path := s.srv.cfg.ACLFile
	if path == "" {
		return store.Err(errNoACLFile)
	}
	if refusal := s.stillMay(args); refusal != "" {
		return store.Err(refusal)
	}
	text, wrong, ok := "", "", false
	if !s.paced(func() { text, wrong, ok = store.FormatACLFile(s.srv.table, s.srv.hub.accounts.users()) }) {
		return store.Err(errLeft)
	}
	var err error
	switch {
	case !ok && wrong != "":
		err = faultUntold(wrong)
	case !ok:
		return store.Err(errACLFileUsers)
	case len(text) > maxACLFile:
		return store.Err(errACLFileSize(len(text)))
	default:
		err = replaceFile(path, text)
	}
	if err != nil {
		s.srv.cfg.Log.Error("ACL SAVE failed", "file", path, "error", err)
		return store.Err(errACLSave)
	}
	if err := removeLeftovers(path); err != nil {
		s.srv.cfg.Log.Warn("ACL SAVE: what a crash left of an earlier one cannot be deleted: delete it", "error", err)
	}
	return store.OK
}

// users returns all users that this node knows, sorted by name.
func (a *accounts) users() (list []*store.User) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, acc := range a.byName {
		list = append(list, acc.user.Load())
	}
	slices.SortFunc(list, func(x, y *store.User) int { return strings.Compare(x.Name, y.Name) })
	return list
}

// ReadACLFile reads the users in an ACL file. With allChannels, a user in the file begins with the right to all channels, as
// with acl-pubsub-default allchannels.
func ReadACLFile(path string, table *store.Table, allChannels bool) ([]*store.User, error) {
	text, err := readACLFile(path)
	if err != nil {
		return nil, faultOpening(path, reason(err))
	}
	users, faults := store.ParseACLFile(table, path, text, allChannels)
	if faults != "" {
		return nil, errors.New(faults)
	}
	return users, nil
}

// readACLFile returns the text of a regular file. O_NONBLOCK keeps the opening of a pipe from waiting for a writer.
func readACLFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return "", err
	case info.IsDir():
		return "", syscall.EISDIR
	case !info.Mode().IsRegular():
		return "", errNotRegular
	}
	text, err := io.ReadAll(io.LimitReader(f, maxACLFile+1))
	if err == nil && len(text) > maxACLFile {
		err = faultLonger(maxACLFile)
	}
	return string(text), err
}

// reason returns why the system refused an operation, in the words of the C library.
func reason(err error) string {
	text := err.Error()
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		text = errno.Error()
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// replaceFile replaces a file atomically: even after a crash, the file has all of the old text or all of the new.
func replaceFile(path, text string) (err error) {
	path = linked(path)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errNotRegular
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, unfinished(path)+"*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// linked returns the target of a symbolic link. If the path is no link, or the link cannot be followed, linked returns the
// path itself.
func linked(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// unfinished returns the beginning of the names of the files that replaceFile writes before it renames them to path. A
// number follows.
func unfinished(path string) string { return "." + filepath.Base(path) + ".tmp-" }

// An unfinished file of replaceFile that is younger than leftoverAge may belong to another ACL SAVE, perhaps of another node.
const leftoverAge = time.Hour

// removeLeftovers deletes unfinished files of replaceFile that are more than leftoverAge older than the file at path, which was just
// written.
func removeLeftovers(path string) error {
	path = linked(path)
	written, err := os.Stat(path)
	if err != nil {
		return err
	}
	before := written.ModTime().Add(-leftoverAge)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	var faults []error
	for _, e := range entries {
		number, ours := strings.CutPrefix(e.Name(), unfinished(path))
		if !ours || number == "" || strings.Trim(number, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
		if !errors.Is(err, fs.ErrNotExist) { // the file is gone: the ACL SAVE that wrote it has just ended
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// compareACLFile logs a warning if the cluster's users are not those that this node read from its ACL file at its start.
func (srv *Server) compareACLFile() {
	a := srv.hub.accounts
	if srv.cfg.ACLFile == "" || !a.current.Load() || srv.table.Lookup([]byte("acl")) == nil {
		return
	}
	own := map[string]string{}
	for _, u := range srv.cfg.ACLUsers {
		own[u.Name] = u.Packed()
	}
	differ := false
	for _, u := range a.users() {
		rules, is := own[u.Name]
		differ = differ || is && rules != u.Packed() || !is && u.Name != store.DefaultUser
		delete(own, u.Name)
	}
	if differ || len(own) > 0 {
		srv.cfg.Log.Warn(warnACLFile, "file", srv.cfg.ACLFile)
	}
}
