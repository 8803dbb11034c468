// Package auxlib is C Lua's auxiliary library for functions that scripts call: it checks
// and converts their arguments, and builds the strings that they return.
//
// It needs two things from the engine, charging memory and raising errors, and gets them
// through two interfaces of one method each. It must not import luavm.
package auxlib
