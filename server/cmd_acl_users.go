package server

import "github.com/lockstep-io/lockstep/store"

// This file has the ACL commands that the leader runs, except ACL LOAD (runACLLoad).

func runSetUser(c *store.Ctx) store.Reply {
	name := c.Arg(2)
	if store.HasSpaces(name) {
		return store.Err(errUserSpaces)
	}
	args := make([]string, 0, len(c.Args)-3)
	for i := 3; i < len(c.Args); i++ {
		args = append(args, c.Arg(i))
	}
	rules, open := store.MergeSelectors(args)
	if open != "" {
		return store.Err(errUnmatched(open))
	}
	if store.SizeOfRules(rules) > c.MaxEntry()+store.MinEntry {
		return store.Err(c.ErrTooBig())
	}
	table, all := c.Cmd.Table(), c.NewUsersGetAllChannels()
	u := c.Txn.User(table, name)
	if u == nil {
		u = store.NewUser(table, name, all)
	}
	u, refusal := c.WithRules(u, rules, all)
	if refusal != "" {
		return store.Err(refusal)
	}
	if refusal := c.AdmitUser(u); refusal != "" {
		return store.Err(refusal)
	}
	return store.OK
}

func runDelUser(c *store.Ctx) store.Reply {
	for _, name := range c.Args[2:] {
		if string(name) == store.DefaultUser {
			return store.Err(errDefaultUser)
		}
	}
	n := int64(0)
	for i := 2; i < len(c.Args); i++ {
		c.Work(2)
		if name := c.Arg(i); c.Txn.User(c.Cmd.Table(), name) != nil {
			c.DeleteUser(name)
			n++
		}
	}
	return store.Int(n)
}

func runGetUser(c *store.Ctx) store.Reply {
	u := c.Txn.User(c.Cmd.Table(), c.Arg(2))
	if u == nil {
		return store.Nil
	}
	c.Work(2 * u.DescribeSteps())
	return u.Describe()
}

func runACLList(c *store.Ctx) store.Reply {
	r, size := store.List(), int64(0)
	for _, name := range c.UserNames() {
		u := c.Txn.User(c.Cmd.Table(), name)
		c.Work(1 + u.DescribeSteps())
		line := store.Str("user " + name + " " + u.String())
		if size += int64(store.Extent([]store.Reply{line}, 0)); size > c.MaxReply() {
			return store.Err(c.ErrReply())
		}
		r.Elems = append(r.Elems, line)
	}
	return r
}

func runUsers(c *store.Ctx) store.Reply { return store.Strs(c.UserNames()...) }

func runDryRun(c *store.Ctx) store.Reply {
	table := c.Cmd.Table()
	u := c.Txn.User(table, c.Arg(2))
	if u == nil {
		return store.Err(errDryRunUser(c.Args[2]))
	}
	args := c.Args[3:]
	cmd, ok := table.Resolve(args)
	switch {
	case cmd == nil, !ok && len(args) > 1:
		return store.Err(errDryRunCommand(args[0]))
	case !ok, !cmd.ArityOK(len(args)):
		return store.Err(store.ErrWrongArgs(cmd.FullName()))
	}
	why, arg, steps := u.CheckSteps(cmd, args)
	c.Work(store.CheckedSteps(steps))
	if why == store.Allowed {
		return store.OK
	}
	object := cString(args[arg], len(args[arg]))
	switch why {
	case store.DeniedKey:
		return store.Str("This user has no permissions to access the '" + object + "' key")
	case store.DeniedChannel:
		return store.Str("This user has no permissions to access the '" + object + "' channel")
	case store.Undecided:
		return store.Err(why.Refusal(cmd))
	}
	return store.Str("This user has no permissions to run the '" + cmd.FullName() + "' command")
}
