package luavm

import (
	"sync"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// presentCall describes the running function, for FUNCTION STATS. A function waits for mu at its start and end, so get must be brief.
type presentCall struct {
	mu    sync.Mutex
	name  string // "" if none runs
	args  [][]byte
	shown *shownCall // what get returns for this call; nil until get is called

	libraries, functions int // how many of each existed when the call began
}

// shownCall is the part of the reply to FUNCTION STATS that stays the same during a call.
type shownCall struct {
	name    string
	command []string

	libraries, functions int
}

// begins records that a function begins to run.
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

// get returns what FUNCTION STATS shows of the running function; nil if no function runs.
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

// FUNCTION STATS shortens arguments that together take more than wholeCall bytes, because any client may ask often. Each argument
// counts callArgument bytes more.
const (
	wholeCall    = 8 << 10
	callArgument = 32
)

// shownArgs returns a copy of the arguments of a call, shortened if they take more than wholeCall bytes.
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
