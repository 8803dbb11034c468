package compile

import "unsafe"

// These bound the time of compiling. A step is a token, or one element of a list that the compiler goes through.
const (
	maxSteps       = 20_000_000 // a long chain of "or" takes many steps: for each "or", join walks over the jumps of all before it
	comparedInStep = 8          // how many upvalues are compared in the time of a step
)

// The meter calls its function watch when watchSteps steps or watchBytes bytes have been counted since the last call of watch.
const (
	watchSteps = 4096
	watchBytes = 64 << 10
)

// These are the bytes counted for what the compiler allocates, besides slices (push, exact). constantBytes and nameBytes include the
// spare room of maps.
const (
	functionBytes = 1 << 10
	blockBytes    = 64
	targetBytes   = 96
	boxBytes      = 16 // a number, or the head of a string, as a value
	infoBytes     = 32 // a variable in the debug information of a prototype
	constantBytes = 112
	nameBytes     = 160
	protoBytes    = 320
)

// Progress says how many steps and bytes compiling has taken since the last call of watch, and how many bytes it keeps in all.
type Progress struct {
	Steps int
	Bytes int64
	Kept  int64 // bytes of the finished prototypes, without the constants and local variables that they point to
}

// meter counts the steps and the memory of compiling, and passes them to watch. The counts depend on the source alone.
type meter struct {
	steps int
	told  int   // the steps that were passed to watch
	bytes int64 // allocated since the last call of watch
	kept  int64 // bytes of the prototypes of finished functions
	watch func(Progress)
	over  func() // tell calls it when there are too many steps
}

// work counts steps.
func (m *meter) work(steps int) {
	if m.steps += steps; m.steps >= m.told+watchSteps {
		m.tell()
	}
}

// took counts bytes that are about to be allocated.
func (m *meter) took(bytes int) {
	if m.bytes += int64(bytes); m.bytes >= watchBytes {
		m.tell()
	}
}

// keeps counts bytes that are about to be allocated for a prototype.
func (m *meter) keeps(bytes int) {
	m.kept += int64(bytes)
	m.took(bytes)
}

// tell is a function of its own so that Go's compiler inlines its callers.
func (m *meter) tell() {
	if m.steps > maxSteps {
		m.over()
	}
	steps, bytes := m.steps-m.told, m.bytes
	m.told, m.bytes = m.steps, 0
	m.watch(Progress{steps, bytes, m.kept})
}

// push appends v to s. When s grows, push counts the bytes of its new memory.
func push[T any](m *meter, s []T, v T) []T {
	if len(s) == cap(s) {
		s = grow(m, s)
	}
	return append(s, v)
}

func grow[T any](m *meter, s []T) []T {
	n := 8 + cap(s) + cap(s)/2
	m.took(n * size[T]())
	return append(make([]T, 0, n), s...)
}

// exact returns a copy of s for a prototype, and counts its bytes. The copy has no room to grow.
func exact[T any](m *meter, s []T) []T {
	if len(s) == 0 {
		return nil
	}
	m.keeps(len(s) * size[T]())
	return append(make([]T, 0, len(s)), s...)
}

func size[T any]() int {
	var v T
	return int(unsafe.Sizeof(v))
}
