package main

import (
	"math/rand/v2"
	"slices"
	"strconv"
)

// words has the sets from which arguments are drawn. The sets are small, so that many commands use the same keys.
var words = map[string]func(r *rand.Rand) string{
	"str":  typedKey("s"),
	"hash": typedKey("h"),
	"list": typedKey("l"),
	"set":  typedKey("t"),
	"zset": typedKey("z"),
	"bits": typedKey("b"),
	"key":  anyKey,
	// The result of a range by lex is defined only if all scores are equal, so no other command writes these keys.
	"lexset": oneOf("y1", "y2", "y3"),

	"value":   oneOf("", "a", "b", "abc", "0", "1", "-1", "10", "3.5", "9223372036854775807", "-9223372036854775808", " 1", "01", "1e3", "\xff\x00\r\n", "a longer value, so that it is not kept in the embedded form of strings"),
	"member":  oneOf("a", "b", "c", "d", "e", "f", "1", "2", "3", "-7", "100000", "", "\xffz", "a member of more than sixty-four bytes, which ends the compact forms"),
	"field":   oneOf("f", "g", "h", "i", "1", "2", "", "\x00"),
	"int":     oneOf("0", "1", "-1", "2", "7", "100", "-5", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.5", "x", "", " 1"),
	"small":   oneOf("0", "1", "2", "3", "5", "-1", "-2", "-3"),
	"count":   oneOf("0", "1", "2", "3", "10", "1000"),
	"all":     oneOf("1000", "100000"),
	"float":   oneOf("0", "1", "-1", "0.1", "3.0e3", "-2.5", "1e308", "5e-324", "inf", "-inf", "nan", "x", "10.50", "0.30000000000000004"),
	"score":   oneOf("0", "1", "1", "2", "2", "-1", "0.5", "3.25", "1e10", "-1e-5", "inf", "-inf", "17179869184", "0.1"),
	"edge":    oneOf("0", "1", "(1", "2", "(2", "-inf", "+inf", "inf", "(0.5", "5", "x", "1e10"),
	"lex":     oneOf("-", "+", "[a", "(a", "[c", "(c", "[", "(", "a", "[e", "[\xff"),
	"weight":  oneOf("1", "2", "0", "-1", "0.5", "inf", "x"),
	"ttl":     oneOf("1000", "5000", "100000", "1000000", "0", "-1", "9223372036854775807", "x"),
	"ttlms":   oneOf("1000000", "5000000", "100000000", "0", "-1", "9223372036854775807", "x"),
	"at":      oneOf("4000000000", "4000000001", "5000000000", "1", "-1", "9223372036854775807"),
	"atms":    oneOf("4000000000000", "4000000000001", "5000000000000", "1", "-1", "9223372036854775807"),
	"db":      oneOf("0", "1", "2", "3"),
	"pattern": oneOf("*", "s*", "?1", "[hl]*", "[^s]1", "*1*", "", "\\s1", "h[1-2]"),
	"offset":  oneOf("0", "1", "5", "7", "8", "31", "100", "-1", "x"),
	"bit":     oneOf("0", "1", "1", "2"),
	"type":    oneOf("u1", "u8", "i8", "i16", "u63", "i64", "u64", "i3", "i65", "x"),
	"numkeys": oneOf("1", "2", "2", "2", "3", "0", "-1", "x"),
	"moment":  oneOf("0.001", "0.002", "1e-3", "-1", "x", ""),
	"library": oneOf(library, "#!lua name=other\nredis.register_function('o', function() return 1 end)",
		"#!lua name=other\nredis.register_function('call', function() return 1 end)",
		"#!lua name=other\nlocal x = redis.call('GET', 's1')", "#!lua name=x-y\n", "return 1", "#!lua\n", "#!js name=lib\n", "#!lua name=lib\nx"),
	// These are the DUMP of one value of each type by redis-server 7.0.15, and texts that are no DUMP.
	"dump":  oneOf("\x00\x01a\x0a\x00\xbf\xfe\xef\x9b\x8f6}\xb4", "\x12\x01\x02\x0f\x0f\x00\x00\x00\x03\x00\x81a\x02\x81b\x02\x01\x01\xff\x0a\x00\xe0\x1b\xabJG\xceY\x22", "\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\x01\x00\x02\x00\x03\x00\x0a\x00\xa5\x02\x5c\xe2mnM\x1b", "\x10\x12\x12\x00\x00\x00\x04\x00\x81f\x02\x81v\x02\x81g\x02\x01\x01\xff\x0a\x00#\xc1\xa5\xe3]\xfa\xe8\x1c", "\x11\x14\x14\x00\x00\x00\x04\x00\x81a\x02\x01\x01\x81b\x02\x832.5\x04\xff\x0a\x00\xd4Ln\xa4\xf6D\xd9\xd7", "\x00\x01b\x0b\x00\xbf\xfe\xef\x9b\x8f6}\xb4", "", "x"),
	"index": oneOf("0", "1", "-1", "2", "-2", "10", "-10", "x"),
}

// keysPerType is small, so that many commands use the same keys. A tenth of the keys may have any type.
const keysPerType = 3

func typedKey(prefix string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(10) == 0 {
			return anyKey(r)
		}
		return prefix + strconv.Itoa(1+r.IntN(keysPerType))
	}
}

func anyKey(r *rand.Rand) string {
	return string("shltzbx"[r.IntN(7)]) + strconv.Itoa(1+r.IntN(keysPerType))
}

func oneOf(list ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return list[r.IntN(len(list))] }
}

// blocks reports whether a command may wait for as long as its timeout says.
func blocks(name string) bool {
	return slices.Contains([]string{"BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP"}, name)
}
