package luavm

import (
	"runtime/metrics"
	"sync/atomic"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/ext"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
	"github.com/lockstep-io/lockstep/store"
)

// Options configure an Engine. The zero value gives scripts the default memory
// limit and no time limit.
type Options struct {
	// Now is a monotonic clock. Without it scripts have no time limit.
	Now func() time.Duration
	// TimeLimit stops a script that runs longer; 0 means never.
	TimeLimit time.Duration
	// MemoryLimit bounds the bytes of memory that a script needs at one time; a script that needs more is stopped. 0 means
	// 256 MiB.
	MemoryLimit int64
	// Bring may delay a script that allocates. bytes is roughly what was allocated since the last call and what comes next. It may be
	// nil.
	Bring func(bytes int)
	// Log gets the messages of redis.log, and one when a library keeps too much. level is one of redis.LOG_*. Log may be nil.
	Log func(level int, msg string)
	// Fault is called with a description of each fault (fault.go). It may be nil.
	Fault func(msg string)
	// Local runs the commands without a handler in the command table, which the server answers itself. It may be nil.
	Local store.Handler
	// Allow reports whether scripts may call a NoScript command, which Local then runs. It may be nil.
	Allow func(*store.Command) bool
	// Absent returns why lockstep lacks a command of Redis, or "" for any other name. It may be nil.
	Absent func(name string) string
	// Interpret turns the fast path off (fastpath.go): gopher-lua runs every script.
	Interpret bool
	// Trace is called after every command that a script has run. It may be nil.
	Trace func(*store.Ctx)
}

const defaultMemoryLimit = 256 << 20

// Engine evaluates scripts. Only one goroutine at a time may use it, except for the
// methods that any goroutine may call: their comments say so.
type Engine struct {
	opts      Options
	table     *store.Table
	watches   func() // the method commandWorks: the value of store.Ctx.Watch for the commands of scripts
	timeLimit atomic.Int64

	L       *lua.LState
	globals *lua.LTable
	keyList *lua.LTable    // KEYS, and …
	argList *lua.LTable    // … ARGV: the same tables for every script, and empty between scripts
	blank   *lua.LTable    // an empty table: its contents replace those of KEYS and ARGV after every script
	guard   *lua.LFunction // the method guarded, through which every protected call goes (protect.go)
	frames  []interp.Frame // the lowest call frames of L; L does not free these when their calls return
	protect *lua.LTable    // the metatable that marks a table as read-only
	gmeta   *lua.LTable    // the metatable of _G
	random  drand48
	allocs  [1]metrics.Sample // bytes that the process has allocated, as seeAllocations last read them

	joiner   *lua.LFunction // the method joinWaiting (concat.go), and …
	joinMeta *lua.LTable    // … the metatable of waiting values, which has it as __concat

	ipairsStep, pairsStep *lua.LFunction // the iterators that ipairs and pairs return

	rawCreate, rawResume lua.LGFunction // gopher-lua's own coroutine.create and resume
	watchedLoop          interp.Loop    // the interpreter's main loop that calls the hook, and … (nesting.go)
	plainLoop            interp.Loop    // … the one for scripts that need no hook

	ext *ext.Libraries // loaded in L
	arg auxlib.Args    // reads the arguments of the running function

	bySHA    map[string]*chunk
	compiled int64 // bytes that the compiled scripts take
	byBody   map[string]*chunk

	libs    map[string]*loadedLibrary // by name
	settled int                       // calls of Settle, plus 1
	lastRan int                       // the value of settled when a function last ran
	keeping
	kept            atomic.Int64 // the result of Kept
	libEnv, libMeta *lua.LTable  // the globals of functions, see openFunctions
	libRun, libLoad *lua.LTable
	loadingRedis    *lua.LTable // the table redis of libLoad
	present         presentCall

	state   atomic.Uint32 // bits: stateRunning and so on
	started atomic.Int64  // when the running script began, by Now; -1: the clock was not read yet
	loads   atomic.Uint32 // loadsNothing, loadsLibraries or loadsAborted
	before  int64         // how much of the script's time limit was used up before it began (store.Ctx.ScriptTime)

	// Fields of the fast path:
	registers [256]value // between scripts, each has the Lua value nil
	inFast    bool
	told      int // commands that the fast path has passed to Trace: gopher-lua does not pass them again if it runs the script

	// Fields of the running script:
	run
}

// The bits of Engine.state.
const (
	stateRunning = 1 << iota
	stateWrote
	stateKilled
	stateFunction
)

// The values of Engine.loads. A library that loads is not running: no client can kill it.
const (
	loadsNothing   = iota
	loadsLibraries // a command loads libraries, one or many
	loadsAborted   // Abort has stopped that command
)

// run is the state of one evaluation.
type run struct {
	call     store.Ctx // the context that the commands of the script get
	args     [][]byte
	argBuf   []byte
	sha      string // the script's name in errors
	readOnly bool
	full     bool           // memory for data is used up: commands that add data are refused until the script has written (denied)
	loading  *loadedLibrary // set while the code of a library runs
	keeps    bool           // the running code may keep values from call to call
	resp     int            // the protocol version of replies to the script: 2, unless redis.setresp has changed it

	stopAfter int64  // store.Ctx.StopAfter, or StopKept
	stop      string // why the script is being stopped; "" while it is not
	dirty     bool   // the Lua state must not be used again
	budget    int    // instructions until the next look at the limits
	pace      int    // value to which the last look set budget
	looked    int64  // time of the last look
	steps     int64  // instructions run until the last look
	allocated
	depth     int                  // calls nested on Go's stack, see nesting.go
	resuming  bool                 // the next nested call resumes a coroutine
	sources   map[string]string    // full names of loaded chunks by their short names
	active    map[*lua.LState]bool // states that have resumed a coroutine and wait until it yields or ends
	shown     map[lua.LValue]int   // numbers that tostring printed for values
	errSource string
	errLine   int
	replySize int64 // bytes of the strings in the reply so far, with elementCost for each
	ours      bool  // the error being raised has its final text: onError does not reword it

	onTexts uint64 // opcodes that the hook looks at, too, once the script may have a long text (longtext.go); 0 until then

	overflowed overflowed // whether a stack overflow was raised
	unhandled  bool       // the handler of an xpcall must not get the error being raised
}

// allocated says what a script has allocated. If the text of the script was compiled for this run, the counts include what the
// compiler allocated.
type allocated struct {
	spent    int64 // bytes charged so far: roughly what the script has allocated
	nextHeap int64 // value of spent at which to look at the heap
	heapBase int64 // smallest size of the heap at a check: roughly its size without the script; 0: not known yet
	had      int64 // bytes that the process had allocated at the last call of Bring, plus those that were about to be allocated
	seen     int64 // bytes that the process had allocated when seeAllocations last measured; 0: never yet
	measured int64 // bytes that the process has allocated since the script's first look
	nextSeen int64 // value of measured at which to look at the heap
	unseen   int   // looks since the last measurement
	slow     bool  // the instructions between the last two looks took longer than slowAlloc
}

// New returns an engine. Bind must be called before the first evaluation.
func New(opts Options) *Engine {
	if opts.MemoryLimit == 0 {
		opts.MemoryLimit = defaultMemoryLimit
	}
	e := &Engine{opts: opts, settled: 1, bySHA: map[string]*chunk{}, byBody: map[string]*chunk{}}
	e.timeLimit.Store(int64(opts.TimeLimit))
	e.watches = e.commandWorks
	e.random.seed(0)
	e.allocs[0].Name = allocsMetric
	e.arg = auxlib.Args{Errors: host{e}, Steps: host{e}, Memory: host{e}}
	e.rebuild()
	return e
}

// Bind sets the table of commands for scripts. The table usually has the engine's own rows, so New cannot take it.
func (e *Engine) Bind(table *store.Table) { e.table = table }

// SetTimeLimit changes the time limit. It may be called at any time from any
// goroutine; 0 means no limit.
func (e *Engine) SetTimeLimit(d time.Duration) { e.timeLimit.Store(int64(d)) }

// TimeLimit returns the time limit. It may be called from any goroutine.
func (e *Engine) TimeLimit() time.Duration { return time.Duration(e.timeLimit.Load()) }

// BusySince returns when, by Options.Now, the running script or function began. Any goroutine may call it.
func (e *Engine) BusySince() (since time.Duration, running bool) {
	if e.state.Load()&stateRunning == 0 {
		return 0, false
	}
	at := e.started.Load()
	if at < 0 {
		// The script began so recently that it has not looked at the clock yet.
		if e.opts.Now == nil {
			return 0, true
		}
		return e.opts.Now(), true
	}
	return time.Duration(at), true
}

// Running reports whether a script or function runs or a script is being compiled. Any goroutine may call it.
func (e *Engine) Running() bool { return e.state.Load()&stateRunning != 0 }

// Kill stops the running script as SCRIPT KILL does, and returns the reply to
// SCRIPT KILL. It may be called from any goroutine.
func (e *Engine) Kill() store.Reply { return e.kill(0) }

// KillFunction is Kill for FUNCTION KILL.
func (e *Engine) KillFunction() store.Reply { return e.kill(stateFunction) }

func (e *Engine) kill(what uint32) store.Reply {
	for {
		s := e.state.Load()
		switch {
		case s&stateRunning == 0:
			return store.Err(store.ErrNotBusy)
		case s&stateWrote != 0:
			return store.Err(errUnkillable)
		case s&stateFunction != what:
			return store.Err(busyWith(s))
		case e.state.CompareAndSwap(s, s|stateKilled):
			return store.OK
		}
	}
}

// BusyError returns the error that other clients get when a script or function has been running for long. It may be called from any
// goroutine.
func (e *Engine) BusyError() store.Error { return busyWith(e.state.Load()) }

func busyWith(state uint32) store.Error {
	if state&stateFunction != 0 {
		return store.ErrBusyFunction
	}
	return store.ErrBusyScript
}

// Abort stops the running script or function, even one that has written, and the loading of libraries. Any goroutine may call it.
func (e *Engine) Abort() {
	e.loads.CompareAndSwap(loadsLibraries, loadsAborted)
	for {
		s := e.state.Load()
		if s&stateRunning == 0 || e.state.CompareAndSwap(s, s|stateKilled) {
			return
		}
	}
}

// wrote records that the script called a write command. If a kill came first, the kill wins, as in Redis.
func (e *Engine) wrote() {
	for {
		s := e.state.Load()
		if s&stateWrote != 0 || s&stateKilled != 0 || e.state.CompareAndSwap(s, s|stateWrote) {
			return
		}
	}
}

// unwrite records that the script has written nothing: it runs again, and can be killed again.
func (e *Engine) unwrite() {
	for {
		s := e.state.Load()
		if e.state.CompareAndSwap(s, s&^stateWrote) {
			return
		}
	}
}

// rebuild makes a fresh Lua state: in New, and when the old state must not be used again
// (run.dirty).
func (e *Engine) rebuild() {
	setTableLimits()
	L := lua.NewState(lua.Options{
		SkipOpenLibs:        true,
		CallStackSize:       callDepth + callDepth/8,
		MinimizeStackMemory: true,
		RegistrySize:        1 << 10,
		RegistryGrowStep:    1 << 12,
		RegistryMaxSize:     maxRegisters + 2*handlerRegisters,
	})
	e.L, e.frames = L, interp.LowestFrames(L)
	e.globals = L.Get(lua.GlobalsIndex).(*lua.LTable)
	e.guard = L.NewFunction(e.guarded)
	e.openSandbox()
	e.openLoops()
	for _, c := range e.bySHA {
		c.fn = nil
	}
	e.libs = map[string]*loadedLibrary{}
	e.forget()
}

func (e *Engine) log(level int, msg string) {
	if e.opts.Log != nil {
		e.opts.Log(level, msg)
	}
}

func (e *Engine) tell(fault string) {
	if e.opts.Fault != nil {
		e.opts.Fault(fault)
	}
}
