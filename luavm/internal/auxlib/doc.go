// Package auxlib is C Lua's auxiliary library for functions that scripts call: it checks
// and converts their arguments, and collects the text that they return.
//
// It asks for what only the engine can do, to account for memory and to word an error,
// by two interfaces of one method, and must not import luavm.
package auxlib
