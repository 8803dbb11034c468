package interp

import (
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

func compile(t *testing.T, source string) *lua.FunctionProto {
	t.Helper()
	tree, err := parse.Parse(strings.NewReader(source), "x")
	if err != nil {
		t.Fatal(err)
	}
	p, err := lua.Compile(tree, "x")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// gopher-lua's own compiler puts the fields of instructions where this package reads them.
func TestInstructions(t *testing.T) {
	p := compile(t, "local a, b, c = 1, 2, 3 a = b + c while a do b = 'text' end")
	var add, load, back bool
	for pc, inst := range p.Code {
		switch OpOf(inst) {
		case lua.OP_ADD:
			add = ArgA(inst) == 0 && ArgB(inst) == 1 && ArgC(inst) == 2
			if made := InstABC(lua.OP_ADD, 0, 1, 2); made != inst {
				t.Errorf("%#x is made, gopher-lua has %#x", made, inst)
			}
		case lua.OP_LOADK:
			if p.Constants[ArgBx(inst)] == lua.LString("text") {
				load = inst == InstABx(lua.OP_LOADK, ArgA(inst), ArgBx(inst))
			}
		case lua.OP_JMP:
			back = back || ArgSbx(inst) < 0 && pc+1+ArgSbx(inst) >= 0
		}
	}
	if !add || !load || !back {
		t.Errorf("add %v, load %v, back %v", add, load, back)
	}
	inst := InstABC(lua.OP_MOVE, 0xff, 0x1ff, 0x1ff)
	SetOp(&inst, lua.OP_CALL)
	SetA(&inst, 3)
	SetB(&inst, 300)
	SetC(&inst, 5)
	if inst != InstABC(lua.OP_CALL, 3, 300, 5) {
		t.Errorf("%#x", inst)
	}
	SetSbx(&inst, -7)
	if OpOf(inst) != lua.OP_CALL || ArgA(inst) != 3 || ArgSbx(inst) != -7 {
		t.Errorf("%#x", inst)
	}
}

// What this package reads in memory equals what gopher-lua's own functions return.
func TestLayout(t *testing.T) {
	L := lua.NewState(lua.Options{SkipOpenLibs: true, MinimizeStackMemory: true})
	defer L.Close()

	table := L.CreateTable(0, 0)
	table.RawSetInt(1, lua.LTrue)
	table.RawSetInt(2, lua.LFalse)
	table.RawSetString("k", lua.LTrue)
	if got := ArrayPart(table); !slices.Equal(got, []lua.LValue{lua.LTrue, lua.LFalse}) {
		t.Errorf("array %v", got)
	}
	if got := HashKeys(table); !slices.Equal(got, []lua.LValue{lua.LString("k")}) {
		t.Errorf("keys %v", got)
	}
	table.RawSetH(lua.LNumber(0.5), lua.LTrue)
	table.RawSetString("k", lua.LNil)
	if slots, dead := Slots(table), DeadKeys(table); slots != 4 || dead != 1 {
		t.Errorf("%d slots, %d dead keys", slots, dead)
	}
	if k, n, none := PlaceOf(table, lua.LString("k")), PlaceOf(table, lua.LNumber(0.5)), PlaceOf(table, lua.LNil); k != 0 || n != 1 || none != -1 {
		t.Errorf("places %d %d %d", k, n, none)
	}
	SetArrayPart(table, []lua.LValue{lua.LNumber(7)})
	if table.RawGetInt(1) != lua.LNumber(7) || table.RawGetInt(2) != lua.LNil {
		t.Error("the array part was not replaced")
	}

	p := compile(t, "\nreturn f(probe)")
	SetStringConstants(p, slices.Clone(StringConstants(p)))
	for i, c := range p.Constants {
		if s := StringConstants(p)[i]; lua.LString(s) != c {
			t.Errorf("constant %q is %v", s, c)
		}
	}

	called := false
	L.SetGlobal("probe", lua.LTrue)
	L.SetGlobal("f", L.NewFunction(func(L *lua.LState) int {
		called = true
		f := TopFrame(L)
		if f != *FramePlace(L) || !f.Fn.IsG || f.Line() != -1 || f.NArgs != 1 || (*Registers(L))[f.LocalBase] != lua.LTrue {
			t.Errorf("frame %+v", *f)
		}
		if lowest := LowestFrames(L); lowest[f.Idx].Fn != f.Fn {
			t.Error("the frame is not among the lowest")
		}
		return 0
	}))
	steps := 0
	run := *LoopPlace(L)
	*LoopPlace(L) = func(L *lua.LState, base *Frame) {
		steps++
		if f := TopFrame(L); f.Fn.Proto != p || f.Line() != 2 && f.Pc > 0 {
			t.Errorf("frame %+v", *f)
		}
		run(L, base)
	}
	L.Push(L.NewFunctionFromProto(p))
	L.Call(0, 0)
	if !called || steps != 1 {
		t.Errorf("called %v, %d loops", called, steps)
	}
}
