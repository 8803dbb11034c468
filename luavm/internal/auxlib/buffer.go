package auxlib

import "unsafe"

// Memory counts the memory of the running script.
type Memory interface {
	// Charge counts bytes that are about to be allocated. It ends the running script if
	// they are too many.
	Charge(bytes int64)
}

// Buffer is a string that a function builds for a script. It charges memory before it allocates.
type Buffer struct {
	Memory Memory
	B      []byte // call Room before appending to it
}

// Room makes room for n more bytes.
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

// Str appends a string.
func (o *Buffer) Str(s string) {
	o.Room(len(s))
	o.B = append(o.B, s...)
}

// Byte appends a byte.
func (o *Buffer) Byte(c byte) {
	o.Room(1)
	o.B = append(o.B, c)
}

// Text returns the built string. The buffer must not be used any more.
func (o *Buffer) Text() string {
	if cap(o.B)/2 > len(o.B)+64 {
		return string(o.B) // a copy without spare room: luavm counts kept strings by their length
	}
	return unsafe.String(unsafe.SliceData(o.B), len(o.B))
}

// Paste returns a + b; first it charges for that string.
func Paste(m Memory, a, b string) string {
	m.Charge(int64(len(a) + len(b)))
	return a + b
}
