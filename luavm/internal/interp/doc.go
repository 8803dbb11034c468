// Package interp is what gopher-lua's interpreter does not export: the fields of an
// instruction, call frames, the parts of a table, the registers and the main loop of a
// state. They are read and set in place.
//
// The library is pinned, and the package refuses to start with a layout that it does
// not know. It decides nothing, and must not import luavm or a package beside it.
package interp
