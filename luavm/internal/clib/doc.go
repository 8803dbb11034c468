// Package clib has the parts of Redis's C library (glibc on amd64) that scripts can see:
// classes of characters, strtod and printf's %g for numbers, casts to integers, and those
// functions of math whose results differ between Go and C. Its results equal C's, even in
// the sign of NaN; but the last digit of a power, a logarithm, an exponential or a hyperbolic
// function may differ (power.go).
//
// It keeps no state. It imports store for the digits of a number and gopher-lua for the
// type of Lua's numbers, and must not import luavm or another package of luavm/internal.
package clib
