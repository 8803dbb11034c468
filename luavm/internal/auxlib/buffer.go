package auxlib

import "unsafe"

// Memory accounts for memory.
type Memory interface {
	// Charge is told how many bytes are about to be allocated. It ends the running
	// script if they are too many.
	Charge(bytes int64)
}

// Buffer is a text that a function makes for a script. What it is about to take is charged
// before it is taken, so that no encoding, however much longer than its input, goes beyond
// the script's memory.
type Buffer struct {
	Memory Memory
	B      []byte // who appends to it makes Room first
}

// Room makes room for n bytes more.
func (o *Buffer) Room(n int) {
	if n > cap(o.B)-len(o.B) {
		o.grow(n)
	}
}

func (o *Buffer) grow(n int) {
	size := max(len(o.B)+n, cap(o.B)+cap(o.B)/2, 64)
	o.Memory.Charge(int64(size))
	o.B = append(make([]byte, 0, size), o.B...)
}

// Str appends a text.
func (o *Buffer) Str(s string) {
	o.Room(len(s))
	o.B = append(o.B, s...)
}

// Byte appends a byte.
func (o *Buffer) Byte(c byte) {
	o.Room(1)
	o.B = append(o.B, c)
}

// Text is what was written. The buffer must not be used any more.
func (o *Buffer) Text() string {
	if cap(o.B)/2 > len(o.B)+64 {
		return string(o.B) // what is kept of a script is counted by its length
	}
	return unsafe.String(unsafe.SliceData(o.B), len(o.B))
}

// Paste puts texts together, after what that takes has been charged.
func Paste(m Memory, a, b string) string {
	m.Charge(int64(len(a) + len(b)))
	return a + b
}
