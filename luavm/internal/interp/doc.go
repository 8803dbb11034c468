// Package interp gives access to parts of gopher-lua's interpreter that it does not export:
// the fields of an instruction, call frames, the parts of a table, the registers, the open
// upvalues and the main loop of a state. It reads and sets them in memory.
//
// The version of gopher-lua is pinned, and the package refuses to start with a layout that
// it does not know. It has no logic of its own, and must not import luavm or another package
// of luavm/internal.
package interp
