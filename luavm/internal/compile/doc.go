// Package compile compiles Lua 5.1 for gopher-lua's interpreter. It accepts and refuses the
// same programs as C Lua, with the same error texts: gopher-lua's own compiler miscompiles
// some programs and words its errors differently.
//
// Source goes through the scanner (lexer.go), the parser (parser.go for statements,
// parser_expr.go for expressions) and the code generator (codegen.go, codegen_expr.go)
// in one pass. The length of a source, its nesting and the time to compile it are bounded.
//
// It knows neither the engine nor Redis, and must not import luavm. From this repository it
// imports only interp for instructions and clib for numerals.
//
// luavm has the replies recorded from Redis, and tests there that compiled programs behave
// as on Redis (TestCorpus, TestGenerated).
package compile
