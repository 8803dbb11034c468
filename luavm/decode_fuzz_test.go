package luavm

import (
	"strings"
	"testing"
	"time"
)

// FuzzDecoders: what a decoder returns survives encoding and decoding, except MessagePack tables 16 levels deep, as in Redis.
func FuzzDecoders(f *testing.F) {
	for _, b := range []string{
		`{"a":[1,2.5,null,true,"x\u00e9\ud83d\ude00"],"b":{}}`, `[[[[]]]]`, `[1e309,-0,0x10,nan,Infinity]`, `"\ud800"`, `{"":1,"":2}`, strings.Repeat("[", 1100), "1" + strings.Repeat("0", 400),
		"\x82\xa1a\x01\xa1b\x92\xc0\xc3", "\xdd\xff\xff\xff\xff", "\xdb\xff\xff\xff\xffx", "\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("\x91", 40) + "\x01", strings.Repeat("\x91", 15) + "\x81\x90\x01", "\xd9\x03abc\xc1",
		"\x01\x02\x03\x04\x05\x06\x07\x08abc\x00", "",
	} {
		for format := range uint8(6) {
			f.Add(b, format)
		}
	}
	now := time.Duration(0)
	var told []string
	w := newWorld(f, Options{
		Now:       func() time.Duration { now += time.Millisecond; return now },
		TimeLimit: 200 * time.Millisecond, MemoryLimit: 64 << 20,
		Fault: func(msg string) { told = append(told, msg) },
	})
	formats := []string{"<I4s", ">!8 b h i l d s", "=f c0", ">I8 i2 c3", "xBHL", "!4 <d>d"}
	const script = `
local b, fmt = KEYS[1], KEYS[2]
local function again(decode, encode, b)
  local ok, v = pcall(decode, b)
  if not ok then return end
  local there, one = pcall(encode, v)
  if not there then return end
  local back, u = pcall(decode, one)
  if not back and u == 'table index is nil' then return end
  if not back then error('encoded, and not decoded: ' .. tostring(u), 0) end
  local _, two = pcall(encode, u)
  local _, three = pcall(encode, (decode(two)))
  if #two ~= #three then error('encoded to ' .. #two .. ' bytes, then to ' .. #three, 0) end
end
again(cjson.decode, cjson.encode, b)
again(cmsgpack.unpack, cmsgpack.pack, b)
pcall(cmsgpack.unpack_one, b)
pcall(cmsgpack.unpack_limit, b, 3, 0)
local r = {pcall(struct.unpack, fmt, b)}
if r[1] then pcall(struct.pack, fmt, unpack(r, 2)) end
pcall(struct.unpack, b:sub(1, 20), b)
pcall(struct.size, b:sub(1, 20))
pcall(string.format, b:sub(1, 20), 1, 2, 3)
pcall(tonumber, b)
return 'fine'`
	f.Fuzz(func(t *testing.T, b string, format uint8) {
		w.reset()
		told = nil
		r := w.eval(script, b, formats[int(format)%len(formats)])
		if r.Str != "fine" && !strings.Contains(r.Str, "Script killed") && !strings.Contains(r.Str, "limit") && !strings.Contains(r.Str, "not enough memory") {
			t.Errorf("%q", r.Str)
		}
		if len(told) > 0 {
			t.Errorf("%q", told)
		}
		if r := w.eval("return redis.call('echo',string.rep('ok',2)..1)"); r.Str != "okok1" {
			t.Fatalf("afterwards: %q", r.Str)
		}
	})
}
