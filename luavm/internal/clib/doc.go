// Package clib has the parts of Redis's C library (glibc on amd64) that scripts can see:
// classes of characters, strtod and printf's %g for numbers, casts to integers, and
// the functions of math. Its results equal C's to the last digit and to the sign of NaN
// where Go's differ.
//
// It keeps no state. It imports store for the digits of a number and gopher-lua for the
// type of Lua's numbers, and must not import luavm or another package of luavm/internal.
package clib
