package store

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func intLess(a, b int) bool { return a < b }

// checkTree compares a tree with want, and checks the counts and the spare capacity of its nodes.
func checkTree[T comparable](t *testing.T, tr *tree[T], want []T) {
	t.Helper()
	if got := tr.Items(); !slices.Equal(got, want) || tr.Len() != len(want) {
		t.Fatalf("%d elements, counted as %d, want %d", len(got), tr.Len(), len(want))
	}
	if tr.root != nil {
		checkNode(t, tr.root, true)
	}
}

func checkNode[T comparable](t *testing.T, n *treeNode[T], root bool) (height int) {
	t.Helper()
	if len(n.items) > treeMost || !root && len(n.items) < treeLeast {
		t.Fatalf("a node has %d elements", len(n.items))
	}
	checkRoom(t, n.items)
	count := len(n.items)
	if n.kids != nil {
		if len(n.kids) != len(n.items)+1 {
			t.Fatalf("a node has %d elements and %d children", len(n.items), len(n.kids))
		}
		checkRoom(t, n.kids)
		for i, kid := range n.kids {
			h := checkNode(t, kid, false)
			if i > 0 && h != height {
				t.Fatal("leaves are not all at one height")
			}
			height, count = h, count+kid.count
		}
	}
	if n.count != count {
		t.Fatalf("a node counts %d elements and has %d", n.count, count)
	}
	return height + 1
}

// checkRoom checks that a slice has little spare capacity (at most half as many places as elements, and three more), and that these
// places are empty.
func checkRoom[T comparable](t *testing.T, s []T) {
	t.Helper()
	if cap(s) > len(s)*3/2+3 {
		t.Fatalf("room for %d elements, with %d", cap(s), len(s))
	}
	var none T
	for _, x := range s[len(s):cap(s)] {
		if x != none {
			t.Fatal("a free place holds an element")
		}
	}
}

// TestTree: a tree and each of its copies have the same elements as a sorted slice with the same changes.
func TestTree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	type pair struct {
		tr   *tree[int]
		want []int
	}
	all := []pair{{newTree(intLess), nil}}
	for step := range 60_000 {
		p := &all[rnd.IntN(len(all))]
		span := []int{30, 300, 9000}[step/1000%3]
		x := 1 + rnd.IntN(span)
		i, had := slices.BinarySearch(p.want, x)
		if got, ok := p.tr.Get(x); ok != had || had && got != x {
			t.Fatalf("Get(%d) = %d, %v; want %v", x, got, ok, had)
		}
		switch op := rnd.IntN(20); {
		case step/9000%2 == 0 && op < 14 || op < 6:
			if _, replaced := p.tr.Set(x); replaced != had {
				t.Fatalf("Set(%d) replaced: %v", x, replaced)
			}
			if !had {
				p.want = slices.Insert(slices.Clone(p.want), i, x)
			}
		case op < 15:
			if _, ok := p.tr.Delete(x); ok != had {
				t.Fatalf("Delete(%d): %v", x, ok)
			}
			if had {
				p.want = slices.Delete(slices.Clone(p.want), i, i+1)
			}
		case op < 17 && len(p.want) > 0:
			at := []int{0, len(p.want) - 1, rnd.IntN(len(p.want))}[rnd.IntN(3)]
			if got, _ := p.tr.GetAt(at); got != p.want[at] {
				t.Fatalf("GetAt(%d) = %d, want %d", at, got, p.want[at])
			}
			if got, _ := p.tr.DeleteAt(at); got != p.want[at] {
				t.Fatalf("DeleteAt(%d) = %d, want %d", at, got, p.want[at])
			}
			p.want = slices.Delete(slices.Clone(p.want), at, at+1)
		case op < 18:
			last := span + step
			p.tr.Load(last)
			if at, had := slices.BinarySearch(p.want, last); !had {
				p.want = slices.Insert(slices.Clone(p.want), at, last)
			}
		case op < 19:
			checkWalks(t, p.tr, p.want, x)
		case step%7 == 0:
			c := pair{p.tr.Copy(), p.want}
			if len(all) < 5 {
				all = append(all, c)
			} else {
				all[rnd.IntN(len(all))] = c
			}
		}
		if step%100 == 0 {
			for _, p := range all {
				checkTree(t, p.tr, p.want)
			}
		}
	}
}

// checkWalks compares ten elements from a given one on, in ascending and in descending order.
func checkWalks(t *testing.T, tr *tree[int], want []int, from int) {
	t.Helper()
	some := func(walk func(int, func(int) bool)) (got []int) {
		walk(from, func(x int) bool {
			got = append(got, x)
			return len(got) < 10
		})
		return got
	}
	i, had := slices.BinarySearch(want, from)
	if got, up := some(tr.Ascend), want[i:min(i+10, len(want))]; !slices.Equal(got, up) {
		t.Fatalf("from %d up: %v, want %v", from, got, up)
	}
	if had {
		i++
	}
	down := slices.Clone(want[max(i-10, 0):i])
	slices.Reverse(down)
	if got := some(tr.Descend); !slices.Equal(got, down) {
		t.Fatalf("from %d down: %v, want %v", from, got, down)
	}
}

// TestTreeAsQueue: if elements come and go, and the length stays the same, a tree does not make new nodes each time.
func TestTreeAsQueue(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7, 20, 41, 42, 62, 63, 64, 65, 84, 127, 128, 500} {
		for _, op := range []struct {
			name string
			pop  func(*tree[int]) (int, bool)
		}{{"queue", (*tree[int]).PopMin}, {"stack", (*tree[int]).PopMax}} {
			tr := newTree(intLess)
			next := 0
			push := func() { next++; tr.Set(next) }
			for range n {
				push()
			}
			const rounds = 2000
			each := testing.AllocsPerRun(1, func() {
				for range rounds {
					push()
					op.pop(tr)
				}
			}) / rounds
			if each > 0.5 {
				t.Errorf("a %s of %d elements allocates %.2f times for each", op.name, n, each)
			}
		}
	}
}

// When an element is removed or replaced, nothing in the tree refers to it any more.
func TestTreeLetsGo(t *testing.T) {
	tr := newTree(func(a, b string) bool { return a < b })
	for i := range treeMost + 1 { // the last element makes the root split
		tr.Set(string(rune('a' + i)))
	}
	low, high := tr.root.kids[0], tr.root.kids[1]
	if &low.items[:cap(low.items)][cap(low.items)-1] == &high.items[:cap(high.items)][cap(high.items)-1] {
		t.Error("two nodes share their room")
	}
	if room := cap(low.items) + cap(high.items); room > treeMost*3/2 {
		t.Errorf("after a division there is room for %d", room)
	}
	checkTree(t, tr, tr.Items())
	for tr.Len() > 1 {
		tr.PopMin()
		checkTree(t, tr, tr.Items())
	}
	if strings.Compare(tr.Items()[0], "a") <= 0 {
		t.Error("the wrong one is left")
	}
}
