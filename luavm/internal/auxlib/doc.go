// Package auxlib is C Lua's auxiliary library for functions that scripts call: it checks
// and converts their arguments, and builds the strings that they return.
//
// It needs three things from the engine: to raise errors, to count work and to charge memory.
// It gets them through three interfaces of one method each. It must not import luavm.
package auxlib
