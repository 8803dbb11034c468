// Package ext has four of the libraries that Redis gives to scripts besides those of Lua:
// cjson, cmsgpack, struct and bit. The first three decode bytes from clients, and charge memory
// for their results while these grow.
//
// The libraries use the engine through Host, and must not import luavm. Tests in luavm compare them
// with replies recorded from Redis (TestCorpus), and fuzz their decoders (FuzzDecoders).
package ext
