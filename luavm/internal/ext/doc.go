// Package ext has the four libraries that Redis gives to scripts besides those of Lua:
// cjson, cmsgpack, struct and bit. They decode bytes from clients, and charge memory for
// their results while these grow.
//
// They use the engine through Host, and must not import luavm. luavm has the replies
// recorded from Redis, and tests the libraries there (TestCorpus, FuzzDecoders).
package ext
