package server

import (
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

func clientRows() []row {
	const (
		plain = store.NoScript | store.Loading | store.Stale | store.Connection
		admin = plain | store.Admin
	)
	sub := func(name string, arity int, flags store.Flags, since, usage, summary string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: flags, Since: since, Usage: usage, Summary: summary}, do: do}
	}
	list := sub("list", -2, admin, "2.4.0", "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
		"Lists the connections of this node.", doClientList)
	info := sub("info", 2, plain, "6.2.0", "", "Describes this connection.", doClientInfo)
	list.Tips = []string{"nondeterministic_output"}
	info.Tips = list.Tips
	return []row{{
		Command: store.Command{
			Name: "client", Arity: -2, Group: "connection", Since: "2.4.0",
			Summary: "Commands about connections.",
		},
		sub: []row{
			sub("caching", 3, plain, "6.0.0", "<YES | NO>", "Says whether the next command is tracked.", doClientCaching),
			sub("getname", 2, plain, "2.6.9", "", "Returns the name of this connection.", doClientGetName),
			sub("getredir", 2, plain, "6.0.0", "", "Returns the id of the client that tracking messages go to.", doClientGetRedir),
			helpRow("client", "5.0.0", store.Connection),
			sub("id", 2, plain, "5.0.0", "", "Returns the id of this connection.", doClientID),
			info,
			sub("kill", -3, admin, "2.4.0",
				"<ip:port | <[ID client-id] | [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] | [USER username] | [ADDR ip:port] | [LADDR ip:port] | [SKIPME <YES | NO>]> ...>",
				"Closes connections.", doClientKill),
			list,
			sub("no-evict", 3, admin, "7.0.0", "<ON | OFF>", "Keeps this connection when memory is short.", doClientNoEvict),
			sub("no-touch", 3, plain, "7.2.0", "<ON | OFF>", "Keeps this connection's reads from changing when keys were last used.", doClientNoTouch),
			sub("pause", -3, admin, "2.9.50", "timeout [WRITE | ALL]", "Holds the commands of this node's clients back for a while.", doClientPause),
			sub("reply", 3, plain, "3.2.0", "<ON | OFF | SKIP>", "Turns replies to this connection off and on.", doClientReply),
			sub("setinfo", 4, plain, "7.2.0", "<LIB-NAME libname | LIB-VER libver>", "Says which client library this connection uses.", doClientSetInfo),
			sub("setname", 3, plain, "2.6.9", "connection-name", "Names this connection.", doClientSetName),
			sub("tracking", -3, plain, "6.0.0",
				"<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
				"Tells this connection, or another, when keys change that it has read.", doClientTracking),
			sub("trackinginfo", 2, plain, "6.2.0", "", "Describes client side caching on this connection.", doClientTrackingInfo),
			sub("unblock", -3, admin, "5.0.0", "client-id [TIMEOUT | ERROR]", "Wakes a client that is blocked by a command.", doClientUnblock),
			sub("unpause", 2, admin, "6.2.0", "", "Ends CLIENT PAUSE.", doClientUnpause),
		},
	}}
}

func doOK(*session, [][]byte) store.Reply { return store.OK }

func doClientID(s *session, _ [][]byte) store.Reply { return store.Int(s.id) }

func doClientGetName(s *session, _ [][]byte) store.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name == "" {
		return store.Nil
	}
	return store.Str(s.name)
}

// validName reports whether a line of CLIENT LIST can show a name: it has no spaces, control characters or bytes beyond ASCII.
func validName(name []byte) bool {
	for _, c := range name {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}

func (s *session) setName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds(int64(len(name) - len(s.name)))
	s.name = name
}

func doClientSetName(s *session, args [][]byte) store.Reply {
	if !validName(args[2]) {
		return store.Err(errClientName)
	}
	s.setName(string(args[2]))
	return store.OK
}

func doClientSetInfo(s *session, args [][]byte) store.Reply {
	value := string(args[3])
	option := strings.ToLower(string(args[2]))
	if option != "lib-name" && option != "lib-ver" {
		return store.Err(errf("ERR Unrecognized option '%s'", cString(args[2], len(args[2]))))
	}
	if !validName(args[3]) {
		return store.Err(errf("ERR %s cannot contain spaces, newlines or special characters.", option))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	field := &s.libVer
	if option == "lib-name" {
		field = &s.libName
	}
	s.holds(int64(len(value) - len(*field)))
	*field = value
	return store.OK
}

// onOff parses the argument ON or OFF.
func onOff(arg []byte) (on, ok bool) {
	switch strings.ToLower(string(arg)) {
	case "on":
		return true, true
	case "off":
		return false, true
	}
	return false, false
}

func doClientNoEvict(s *session, args [][]byte) store.Reply {
	on, ok := onOff(args[2])
	if !ok {
		return store.Err(store.ErrSyntax)
	}
	s.noEvict.Store(on)
	return store.OK
}

func doClientNoTouch(s *session, args [][]byte) store.Reply {
	on, ok := onOff(args[2])
	if !ok {
		return store.Err(store.ErrSyntax)
	}
	s.noTouch.Store(on)
	return store.OK
}

func doClientReply(s *session, args [][]byte) store.Reply {
	switch strings.ToLower(string(args[2])) {
	case "on":
		s.silent, s.skip = false, 0
		return store.OK
	case "off":
		s.silent = true
	case "skip":
		if !s.silent {
			s.skip = 2
		}
	default:
		return store.Err(store.ErrSyntax)
	}
	return store.Reply{Kind: store.None}
}

// clientFilter selects connections for CLIENT KILL and CLIENT LIST.
type clientFilter struct {
	ids         []int64 // sorted; nil: any id
	class       string
	addr, laddr *string
	account     *account
	skip        *session
}

func (f *clientFilter) matches(s *session) bool {
	return (f.ids == nil || f.hasID(s.id)) &&
		(f.class == "" || f.class == s.class()) &&
		(f.addr == nil || *f.addr == s.addr) &&
		(f.laddr == nil || *f.laddr == s.laddr) &&
		(f.account == nil || f.account == s.account.Load()) &&
		f.skip != s
}

func (f *clientFilter) hasID(id int64) bool {
	_, has := slices.BinarySearch(f.ids, id)
	return has
}

// clientClass parses a client type. No connection of this server has the type master or replica.
func clientClass(arg []byte) (string, bool) {
	switch class := strings.ToLower(string(arg)); class {
	case "normal", "pubsub", "master":
		return class, true
	case "replica", "slave":
		return "slave", true
	}
	return "", false
}

func doClientKill(s *session, args [][]byte) store.Reply {
	if len(args) == 3 {
		// The old form names one address, which may be the client's own.
		addr := string(args[2])
		if s.kill(&clientFilter{addr: &addr}) == 0 {
			return store.Err(errNoSuchClient)
		}
		return store.OK
	}
	filter, refusal := s.killFilter(args[2:])
	if refusal != "" {
		return store.Err(refusal)
	}
	return store.Int(int64(s.kill(filter)))
}

func (s *session) killFilter(opts [][]byte) (*clientFilter, store.Error) {
	f := &clientFilter{skip: s}
	for i := 0; i < len(opts); i += 2 {
		if i+1 == len(opts) {
			return nil, store.ErrSyntax
		}
		value := opts[i+1]
		switch strings.ToLower(string(opts[i])) {
		case "id":
			id, ok := redistext.ParseInt(value)
			if !ok || id < 1 {
				return nil, errClientID
			}
			f.ids = []int64{id}
		case "type":
			class, ok := clientClass(value)
			if !ok {
				return nil, errClientType(value)
			}
			f.class = class
		case "addr":
			addr := string(value)
			f.addr = &addr
		case "laddr":
			addr := string(value)
			f.laddr = &addr
		case "user":
			if f.account = s.srv.hub.accounts.get(string(value)); f.account == nil {
				return nil, errNoSuchUser(value)
			}
		case "skipme":
			switch strings.ToLower(string(value)) {
			case "yes":
				f.skip = s
			case "no":
				f.skip = nil
			default:
				return nil, store.ErrSyntax
			}
		default:
			return nil, store.ErrSyntax
		}
	}
	return f, ""
}

// kill closes the connections that f matches, the session's own after the reply. Requests of the others that wait for their turn are
// not run.
func (s *session) kill(f *clientFilter) int {
	n := 0
	for _, other := range s.srv.each() {
		if !f.matches(other) {
			continue
		}
		n++
		if other == s {
			s.closeAfterReply()
			continue
		}
		other.dropSubscriptions()
		other.client.Gone()
		other.out.abort()
	}
	return n
}
