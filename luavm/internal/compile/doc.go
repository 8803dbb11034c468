// Package compile compiles Lua 5.1 for gopher-lua's interpreter. It replaces gopher-lua's own
// compiler, which miscompiles some programs and words its errors differently. Within the bounds
// below it accepts and refuses the same programs as C Lua, with the same error texts.
//
// Source goes through the scanner (lexer.go), the parser (parser.go for statements,
// parser_expr.go for expressions) and the code generator (codegen.go, codegen_expr.go)
// in one pass. The length of a source, its nesting and the time to compile it are bounded.
//
// The package knows neither the engine nor Redis, and must not import luavm. From this repository
// it imports only interp, for instructions, and clib, for characters, numerals and arithmetic.
//
// The tests that compiled programs behave as on Redis are in luavm (TestCorpus, TestGenerated),
// where the replies recorded from Redis are.
package compile
