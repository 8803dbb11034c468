// Package interp gives access to parts of gopher-lua's interpreter that it does not export:
// the fields of an instruction, call frames, the parts of a table, the registers, the open
// upvalues and the main loop of a state. It reads and sets them through unsafe pointers.
//
// go.mod pins the version of gopher-lua. When the program starts, the package panics if one of
// gopher-lua's fields whose offsets it uses is missing or has another type. The package knows
// nothing of scripts and their limits, and must not import luavm or another package of
// luavm/internal.
package interp
