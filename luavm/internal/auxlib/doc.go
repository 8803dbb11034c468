// Package auxlib does what C Lua's auxiliary library (lauxlib.c) does, for the Go functions that
// scripts call: it checks and converts their arguments, and builds the strings that they return.
//
// auxlib calls the engine through the interfaces Errors, Steps and Memory, to raise errors, count
// work and charge memory. It must not import luavm, which imports it.
package auxlib
