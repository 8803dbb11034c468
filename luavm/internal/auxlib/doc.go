// Package auxlib does what C Lua's auxiliary library (lauxlib.c) does, for the Go functions that
// scripts call: it checks and converts their arguments, and builds the strings that they return.
//
// The engine raises errors, counts work and charges memory for it, through the interfaces Errors,
// Steps and Memory. So auxlib must not import luavm.
package auxlib
