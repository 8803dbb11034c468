package store

import (
	"fmt"
	"strings"
)

// ParseACLFile stops when the text of its errors is longer than maxFileFaults bytes: a wrong path may name a large file of another
// kind.
const maxFileFaults = 8 << 10

// ParseACLFile reads the users of an ACL file, or returns its faults in Redis's words. allChannels is the setting acl-pubsub-default.
func ParseACLFile(t *Table, path, text string, allChannels bool) (users []*User, faults string) {
	p := aclFile{table: t, path: path, allChannels: allChannels, names: map[string]bool{}}
	number := 0
	for line := range strings.SplitSeq(text, "\n") {
		number++
		if line = strings.Trim(line, " \t\r"); line != "" {
			p.line(number, strings.Split(line, " "))
		}
		if p.faults.Len() > maxFileFaults {
			break
		}
	}
	if size := int64(0); p.faults.Len() == 0 {
		for _, u := range p.users {
			size += newAccount(u).size()
		}
		if size > maxUsersSize {
			fmt.Fprintf(&p.faults, faultFileSize+". ", path, maxUsersSize>>20)
		}
	}
	if p.faults.Len() > 0 {
		return nil, p.faults.String() + faultFileKept
	}
	return p.users, ""
}

// aclFile is the state of the parser of an ACL file.
type aclFile struct {
	table       *Table
	path        string
	allChannels bool
	names       map[string]bool
	users       []*User
	faults      strings.Builder
}

func (p *aclFile) line(number int, words []string) {
	fault := func(format string, args ...any) { fmt.Fprintf(&p.faults, format+". ", args...) }
	if words[0] != "user" || len(words) < 2 {
		fault(faultFileUser, p.path, number)
		return
	}
	name, rules := words[1], words[2:]
	switch {
	case HasSpaces(name):
		fault(faultFileName, p.path, number, name)
		return
	case len(name) > maxUserName:
		fault(faultFileLongName, p.path, number, maxUserName)
		return
	case p.names[name]:
		fault(faultFileTwice, name, number)
		return
	case len(p.names) == maxUsers:
		fault(faultFileUsers, p.path, number, maxUsers)
		return
	case len(rules) > maxUserRules:
		fault(faultFileRules, p.path, number, maxUserRules)
		return
	}
	p.names[name] = true
	rules, open := MergeSelectors(rules)
	if open != "" {
		fault(faultFileSelector, p.path, number)
		return
	}
	u, told := NewUser(p.table, name, p.allChannels), false
	for _, rule := range rules {
		rule = strings.Trim(rule, "\t\r")
		switch why := u.apply(rule, p.allChannels); {
		case why == faultUnknown:
			fault(faultFileRule, p.path, number, rule, why)
		case why != "" && !told:
			// Of the later errors in the line, only unknown commands are reported: others may be consequences of this one.
			told = true
			fault(faultFileLine, p.path, number, why)
		}
	}
	p.users = append(p.users, u.seal())
}

// FormatACLFile writes users as an ACL file. If ok is false, wrong is a user whom the format, which has no quotes, cannot represent, or ""
// for too many users.
func FormatACLFile(t *Table, users []*User) (text, wrong string, ok bool) {
	var b strings.Builder
	line := func(u *User) string { return fmt.Sprintf("user %s %s\n", u.Name, lineOf(u.Rules())) }
	for _, u := range users {
		b.WriteString(line(u))
	}
	read, _ := ParseACLFile(t, "", b.String(), false)
	if len(read) == len(users) {
		for i, u := range users {
			if read[i].Packed() != u.Packed() {
				return "", u.Name, false
			}
		}
		return b.String(), "", true
	}
	for _, u := range users {
		if read, _ := ParseACLFile(t, "", line(u), false); len(read) != 1 {
			return "", u.Name, false
		}
	}
	return "", "", false
}

// Packed returns the user's rules as the log stores them. Equal rules give equal bytes.
func (u *User) Packed() string { return encodeRules(u.Rules()) }

// PackedUser is a user as a node sends it to the leader.
type PackedUser struct{ Name, Rules string }

// ReplaceUsers replaces all users. If the new ones lack the default user, that user stays; Redis would let everybody in instead.
func (t *Txn) ReplaceUsers(table *Table, users []PackedUser) (refusal Error) {
	stay := map[string]bool{}
	for _, u := range users {
		stay[u.Name] = true
	}
	if !stay[DefaultUser] && t.account(DefaultUser) == nil {
		hash, _ := t.Config(paramFlagPassword)
		if hash == "" {
			hash = t.env.ACL.PasswordHash
		}
		users = append(users, PackedUser{DefaultUser, InitialUser(table, hash).Packed()})
	}
	if refusal = t.setUsers(users); refusal != "" {
		return refusal
	}
	for _, name := range t.UserNames() {
		if name != DefaultUser && !stay[name] {
			t.DeleteUser(name)
		}
	}
	return ""
}

// EstablishUsers sets the users of a cluster whose users have never been set. The users in the
// leader's own configuration take precedence over the given ones.
func (t *Txn) EstablishUsers(users []PackedUser) (refusal Error) {
	if t.AccountsVersion() > 0 {
		return ""
	}
	if len(t.env.ACL.Users) > 0 {
		users = t.env.ACL.Users
	}
	return t.setUsers(users)
}

// setUsers sets the users of an ACL file. Bounds of writes and of memory do not hold: without users nobody could log in.
func (t *Txn) setUsers(users []PackedUser) (refusal Error) {
	list, size := make([]*Account, len(users)), int64(0)
	for i, u := range users {
		list[i] = &Account{Name: u.Name, rules: u.Rules}
		size += list[i].size()
	}
	if size > maxUsersSize {
		return ErrUsersSize
	}
	t.from.users = true
	if t.ws.most > 0 {
		t.ws.most = t.from.writes + int(t.limit())
	}
	for _, a := range list {
		if old := t.account(a.Name); old == nil || old.rules != a.rules {
			t.setAccount(a)
		}
	}
	return ""
}
