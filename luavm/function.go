package luavm

import (
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/store"
)

// fcall implements FCALL and FCALL_RO.
func (e *Engine) fcall(c *store.Ctx, readOnly bool) store.Reply {
	lib, fn := c.Function(c.Arg(1))
	if fn == nil {
		return store.Err(errNoFunction)
	}
	keys, args, err := keysAndArgs(c, errBadKeyCount)
	if err != "" {
		return store.Err(err)
	}
	noWrites := fn.Flags&store.FunctionNoWrites != 0
	if readOnly && !noWrites {
		return store.Err(errROScript)
	}
	if !noWrites && fn.Flags&store.FunctionAllowOOM == 0 && c.OutOfMemory() {
		return store.Err(c.ErrNoRoom())
	}
	l, err := e.loaded(c, lib)
	if err != "" {
		return store.Err(err)
	}
	callback := l.fns[fn.Name]
	if callback == nil {
		return store.Err(errNoFunction)
	}
	l.ranIn, e.lastRan = e.settled, e.settled
	save := c.Savepoint()
	e.begin(c, fn.Name, noWrites)
	e.keeps = true
	e.watchTexts(int(l.size + l.since))
	e.full = false // the check above has already decided whether the function may run
	e.present.begins(fn.Name, c)
	e.start(stateRunning|stateFunction, c.ScriptTime)
	reply := e.executeFunction(callback, keys, args)
	if e.keepsTooMuch(l) && e.stop == "" {
		e.stop = msgKept
	}
	return e.end(c, save, reply)
}

// executeFunction does what execute does, for a function of a library.
func (e *Engine) executeFunction(callback *lua.LFunction, keys, args [][]byte) store.Reply {
	L := e.L
	L.Env = e.libEnv // the functions that loadstring makes get this environment
	defer func() {
		L.Env = e.globals
		e.present.ends()
	}()
	return e.execute(callback, keys, args)
}

// functionLoad implements FUNCTION LOAD.
func (e *Engine) functionLoad(c *store.Ctx) store.Reply {
	replace := false
	last := len(c.Args) - 1
	for _, word := range c.Args[2:last] {
		if !strings.EqualFold(string(word), "replace") {
			return store.Err(errLoadOption(string(word)))
		}
		replace = true
	}
	e.loads.Store(loadsLibraries)
	defer e.loads.Store(loadsNothing)
	s := restored{}
	l, err := s.load(e, c, c.Arg(last), 0, func(name string) bool { return !replace && c.Library(name) != nil })
	if err == "" {
		err = s.collides(c, l)
	}
	if err == "" && !c.HasRoomForLibraries([]*store.Library{l.lib}, false) {
		err = store.ErrTooMuchCode
	}
	if err == "" {
		err = s.sum.Add(c.Txn, l.lib) // if the functions share one long description, storing the library takes more memory than loading it
	}
	if err != "" {
		return store.Err(err)
	}
	c.LoadLibrary(l.lib)
	e.keep(l)
	return store.Str(l.lib.Name)
}

// restored holds libraries that one command has loaded and not yet stored.
type restored struct {
	list      []*loadedLibrary
	byName    map[string]bool
	functions map[string]bool // by function name in lower case
	sum       store.NewLibraries
}

// load loads one more library into s, with Redis's checks in their order. took is the time of loading those in s. taken reports whether a
// stored library has a name and may not be replaced.
func (s *restored) load(e *Engine, c *store.Ctx, code string, took time.Duration, taken func(name string) bool) (*loadedLibrary, store.Error) {
	name, skip, err := parseLibrary(code)
	switch {
	case err != "":
		return nil, err
	case s.byName[name] || taken(name):
		return nil, errLibraryExists(name)
	}
	l, err := e.loadLibrary(name, code, skip, c.ScriptTime+took)
	if err != "" {
		c.TookAll = e.tookAll()
		return nil, err
	}
	if len(l.lib.Functions) > maxFunctions {
		return nil, errTooManyFunctions()
	}
	return l, s.add(l)
}

func (s *restored) add(l *loadedLibrary) store.Error {
	if s.byName == nil {
		s.byName, s.functions = map[string]bool{}, map[string]bool{}
	}
	for _, f := range l.lib.Functions {
		if s.functions[strings.ToLower(f.Name)] {
			return errFunctionExists(f.Name)
		}
	}
	for _, f := range l.lib.Functions {
		s.functions[strings.ToLower(f.Name)] = true
	}
	s.byName[l.lib.Name] = true
	s.list = append(s.list, l)
	return ""
}

// collides returns an error if l has a function of a stored library that s does not replace.
func (s *restored) collides(c *store.Ctx, l *loadedLibrary) store.Error {
	for _, f := range l.lib.Functions {
		if other, _ := c.Function(f.Name); other != nil && !s.byName[other.Name] {
			return errFunctionExists(f.Name)
		}
	}
	return ""
}

// functionRestore implements FUNCTION RESTORE.
func (e *Engine) functionRestore(c *store.Ctx) store.Reply {
	if len(c.Args) > 4 {
		return store.Err(errFunctionSyntax(c.Arg(1)))
	}
	policy := "append"
	if len(c.Args) == 4 {
		policy = strings.ToLower(c.Arg(3))
	}
	if policy != "append" && policy != "replace" && policy != "flush" {
		return store.Err(errRestorePolicy)
	}
	s, err := e.readDump(c, c.Arg(2))
	if err == "" && policy != "flush" {
		err = s.join(c, policy == "replace")
	}
	if err == "" && !c.HasRoomForLibraries(s.libraries(), policy == "flush") {
		err = store.ErrTooMuchCode
	}
	if err != "" {
		return store.Err(err)
	}
	if policy == "flush" {
		c.FlushLibraries()
		e.forget()
	}
	// Delete the replaced libraries first: a function may move to another library.
	for _, l := range s.list {
		if c.Library(l.lib.Name) != nil {
			c.DeleteLibrary(l.lib.Name)
		}
	}
	for _, l := range s.list {
		c.LoadLibrary(l.lib)
		delete(e.libs, l.lib.Name) // the next call loads it again
	}
	return store.OK
}

func (s *restored) libraries() (list []*store.Library) {
	for _, l := range s.list {
		list = append(list, l.lib)
	}
	return list
}

// readDump loads the libraries of a dump.
func (e *Engine) readDump(c *store.Ctx, dump string) (*restored, store.Error) {
	r, err := c.ReadLibraries(dump)
	if err != "" {
		return nil, err
	}
	e.loads.Store(loadsLibraries)
	defer e.loads.Store(loadsNothing)
	s := &restored{}
	start, limit := e.now(), time.Duration(e.timeLimit.Load())-c.ScriptTime
	for {
		code, more, err := r.Next()
		if err != "" || !more {
			return s, err
		}
		// loadTimeLimit bounds the time of each library; this limit bounds the time of all of them together.
		took := e.now() - start
		if e.timeLimit.Load() > 0 && took > limit {
			c.TookAll = true
			return nil, errRegister("ERR " + msgLoad)
		}
		if e.loads.Load() == loadsAborted {
			return nil, errRegister("ERR " + msgKilled)
		}
		l, err := s.load(e, c, code, took, func(string) bool { return false })
		if err != "" {
			return nil, err
		}
		l.fns = nil // frees the functions: those of all libraries together could take too much memory
		if err := s.sum.Add(c.Txn, l.lib); err != "" {
			return nil, err
		}
	}
}

// now returns the time by Options.Now; 0 if there is no such clock.
func (e *Engine) now() time.Duration {
	if e.opts.Now == nil {
		return 0
	}
	return e.opts.Now()
}

// join returns an error if the libraries of s conflict with stored ones. The argument replace means that stored libraries of the same
// names are replaced.
func (s *restored) join(c *store.Ctx, replace bool) store.Error {
	for _, l := range s.list {
		if !replace && c.Library(l.lib.Name) != nil {
			return errLibraryTaken(l.lib.Name)
		}
	}
	for _, l := range s.list {
		if err := s.collides(c, l); err != "" {
			return err
		}
	}
	return ""
}
