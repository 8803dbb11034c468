// Package compile compiles Lua 5.1 for gopher-lua's interpreter. It accepts and refuses
// what C Lua does, in its words, because gopher-lua's own compiler miscompiles some
// programs and words its errors differently.
//
// Source goes through the scanner (lexer.go), the parser (parser.go for statements,
// parser_expr.go for expressions) and the code generator (codegen.go, codegen_expr.go)
// in one pass. How long a source may be, how deep nested, and how long it may take is
// bounded.
//
// It knows neither the engine nor Redis, and must not import luavm: of this repository it
// imports interp for instructions and clib for numerals.
//
// Whether what it compiles does the same as on Redis is tested by luavm, where the
// recorded replies are (TestCorpus, TestGenerated).
package compile
