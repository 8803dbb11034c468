package server

import (
	"fmt"
	"testing"

	"lockstep/store"
)

// TestManyUsersAreDeletedAtOnce: one command that deletes thousands of users, or takes channels from thousands, looks at each
// session once. A look at all sessions for each user would take minutes.
func TestManyUsersAreDeletedAtOnce(t *testing.T) {
	const users, sessions = 30_000, 20_000
	table := store.NewTable(store.Commands())
	srv := &Server{hub: &Hub{}, table: table, sessions: map[int64]*session{}}
	a := newAccounts()
	a.srv, a.init = srv, store.InitialUser(table, "")
	for i := range users {
		a.latest.List = append(a.latest.List, &store.Account{Name: fmt.Sprint(i)})
	}
	a.update()
	// All may listen to a channel, which the next update takes from them.
	listener, refusal := store.NewUser(table, "", false).WithRules([]string{"&c"}, false)
	if refusal != "" {
		t.Fatal(refusal)
	}
	for i := range users {
		a.byName[fmt.Sprint(i)].user.Store(listener)
	}
	for i := range int64(sessions) {
		s := &session{id: i, lifecycle: lifecycle{running: true}}
		s.account.Store(a.byName[fmt.Sprint(i)])
		srv.sessions[i] = s
	}
	srv.sessions[0].subs[subChannel].put("c", struct{}{})
	closing := func() (n int) {
		for _, s := range srv.sessions {
			if s.closing {
				n++
			}
		}
		return n
	}
	a.update()
	if n := closing(); n != 1 || !srv.sessions[0].closing {
		t.Errorf("%d sessions end because their users may no longer listen, not that of the listener alone", n)
	}
	a.latest.List = a.latest.List[sessions/2:]
	a.update()
	if n := closing(); n != sessions/2 || srv.sessions[sessions-1].closing {
		t.Errorf("%d sessions of deleted users end", n)
	}
}
