package compile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// nested returns a Lua text of size bytes with deeply nested functions, whose compiled form is far larger.
func nested(depth, names, size int) string {
	var list []string
	for i := range names {
		list = append(list, string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"[i%53])+strings.Repeat("x", i/53))
	}
	all := strings.Join(list, ",")
	head, unit := "local "+all+" ", strings.Repeat("function f()", depth)+"return "+all+strings.Repeat(" end", depth)+" "
	return head + strings.Repeat(unit, (size-len(head))/len(unit))
}

// costly returns texts whose compiled forms are large, each for a different reason.
func costly(size int) map[string]string {
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (size-len(head)-len(tail))/len(unit)) + tail
	}
	var numbers, names, locals strings.Builder
	for i := 0; numbers.Len() < size*3/4; i++ {
		fmt.Fprintf(&numbers, "x=%d ", i)
		fmt.Fprintf(&names, "n%d=1 ", i)
		fmt.Fprintf(&locals, "do local l%d end ", i)
	}
	return map[string]string{
		"nested, 60 names": nested(190, 60, size),
		"nested, 25 names": nested(190, 25, size),
		"nested, 1 name":   nested(190, 1, size),
		"nested less":      nested(20, 60, size),
		"functions":        fill("local x={", "function()end,", "}"),
		"parameters":       fill("", "function f("+strings.Repeat("a,", 190)+"a)end ", ""),
		"variables":        fill("", "do local "+strings.Repeat("a,", 190)+"a end ", ""),
		"statements":       fill("", "f()", ""),
		"items":            fill("local x={", "1,", "}"),
		"tests":            fill("local a ", "a=a<a ", ""),
		"blocks":           fill("", "do end ", ""),
		"assignments":      fill("", "a,b,c,d=a ", ""),
		"fields":           fill("local x={", "a=1,", "}"),
		"a string":         fill("return '", "x", "'"),
		"a long string":    fill("return [[", "x", "]]"),
		"strings":          fill("", "f'xxxxxxxxxxx'", ""),
		"a comment":        fill("--[[", "x", "]]"),
		"numbers":          numbers.String(),
		"names":            names.String(),
		"names of locals":  locals.String(),
	}
}

// TestMemoryIsCounted: Chunk reports about as many bytes to the function watch as compiling allocates, whatever the text is.
func TestMemoryIsCounted(t *testing.T) {
	for what, source := range costly(maxSourceBytes / 8) {
		counted, largest := int64(0), int64(0)
		kept := int64(0)
		count := func(p Progress) { counted, largest, kept = counted+p.Bytes, max(largest, p.Bytes), p.Kept }
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Chunk(source, "@x", 0, count)
		runtime.ReadMemStats(&after)
		took := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%s: %d bytes counted, %d allocated, by %d bytes of text", what, counted, took, len(source))
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if counted < took*3/4 || counted > 4*took+1<<20 {
			t.Errorf("%s: %d bytes are counted, %d were allocated", what, counted, took)
		}
		if largest > 16*int64(len(source)) {
			t.Errorf("%s: %d bytes are counted at once", what, largest)
		}
		if kept > counted || kept < counted/3 && strings.HasPrefix(what, "nested") {
			t.Errorf("%s: %d bytes of %d are kept", what, kept, counted)
		}
		again := int64(0)
		if _, err := Chunk(source, "@x", 0, func(p Progress) { again += p.Bytes }); err != nil || again != counted {
			t.Errorf("%s: %d bytes are counted, then %d", what, counted, again)
		}
	}
}
