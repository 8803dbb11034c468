package luavm

import "unsafe"

// buffer is a text that a function makes for a script. What it is about to take is charged
// before it is taken, so that no encoding, however much longer than its input, goes beyond
// the script's memory.
type buffer struct {
	e *Engine
	b []byte
}

// room makes room for n bytes more.
func (o *buffer) room(n int) {
	if n > cap(o.b)-len(o.b) {
		o.grow(n)
	}
}

func (o *buffer) grow(n int) {
	size := max(len(o.b)+n, cap(o.b)+cap(o.b)/2, 64)
	o.e.charge(int64(size))
	o.b = append(make([]byte, 0, size), o.b...)
}

func (o *buffer) str(s string) {
	o.room(len(s))
	o.b = append(o.b, s...)
}

func (o *buffer) byte(c byte) {
	o.room(1)
	o.b = append(o.b, c)
}

// text is what was written. The buffer must not be used any more.
func (o *buffer) text() string {
	if cap(o.b)/2 > len(o.b)+64 {
		return string(o.b) // what is kept of a script is counted by its length
	}
	return unsafe.String(unsafe.SliceData(o.b), len(o.b))
}

// paste puts texts together, after what that takes has been charged.
func (e *Engine) paste(a, b string) string {
	e.charge(int64(len(a) + len(b)))
	return a + b
}
