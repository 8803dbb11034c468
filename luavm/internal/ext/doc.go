// Package ext is the four libraries that Redis gives to scripts beside those of Lua:
// cjson, cmsgpack, struct and bit. They take bytes of clients apart, and what they make is
// accounted for as it grows.
//
// They see the engine through Host, and must not import luavm. What they reply is tested
// by luavm, where the replies recorded from Redis are (TestCorpus, FuzzDecoders).
package ext
