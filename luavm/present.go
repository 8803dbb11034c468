package luavm

import (
	"sync"

	"lockstep/store"
	"lockstep/store/redistext"
)

// presentCall describes the function that runs now, for FUNCTION STATS in other goroutines. The engine takes mu when a function
// begins and when it ends, so FUNCTION STATS must not hold mu for long: the call is copied once, and only as far as it is shown.
type presentCall struct {
	mu    sync.Mutex
	name  string // "" if none runs
	args  [][]byte
	shown *shownCall // nil until somebody asks

	libraries, functions int // how many exist
}

// shownCall is what FUNCTION STATS says of a call to all who ask.
type shownCall struct {
	name    string
	command []string

	libraries, functions int
}

// begins notes the function that runs from now on.
func (p *presentCall) begins(name string, c *store.Ctx) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.args, p.shown = name, c.Args, nil
	p.libraries, p.functions = c.CountLibraries()
}

func (p *presentCall) ends() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.args, p.shown = "", nil, nil
}

// get returns what is shown of the present call; nil if no function runs.
func (p *presentCall) get() *shownCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.name != "" && p.shown == nil {
		p.shown = &shownCall{name: p.name, command: shownArgs(p.args), libraries: p.libraries, functions: p.functions}
		if len(p.name) > wholeCall {
			p.shown.name = redistext.ShownArg(p.name)
		}
	}
	return p.shown
}

// FUNCTION STATS shows a call whole, as Redis does, if its arguments have at most wholeCall bytes, counting callArgument bytes
// more for each. Of a larger call it shows what SLOWLOG would, because anybody may ask again and again, through every node.
const (
	wholeCall    = 8 << 10
	callArgument = 32
)

// shownArgs returns a copy of the arguments of a call as FUNCTION STATS shows them.
func shownArgs(args [][]byte) []string {
	room := wholeCall
	for _, arg := range args {
		if room -= callArgument + len(arg); room < 0 {
			return redistext.Shown(args)
		}
	}
	list := make([]string, len(args))
	for i, arg := range args {
		list[i] = string(arg)
	}
	return list
}

// RunningFunction returns the reply to FUNCTION STATS while a function runs; Nil if none
// does. It may be called from any goroutine.
func (e *Engine) RunningFunction() store.Reply {
	call := e.present.get()
	if call == nil {
		return store.Nil
	}
	ms := int64(0)
	if since, running := e.BusySince(); running && e.opts.Now != nil {
		ms = (e.opts.Now() - since).Milliseconds()
	}
	return functionStats(call.libraries, call.functions, store.MapOf(
		store.Str("name"), store.Str(call.name),
		store.Str("command"), store.Strs(call.command...),
		store.Str("duration_ms"), store.Int(ms),
	))
}

func functionStats(libraries, functions int, running store.Reply) store.Reply {
	return store.MapOf(
		store.Str("running_script"), running,
		store.Str("engines"), store.MapOf(store.Str(libraryEngine), store.MapOf(
			store.Str("libraries_count"), store.Int(int64(libraries)),
			store.Str("functions_count"), store.Int(int64(functions)),
		)),
	)
}
