package main

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/lockstep-io/lockstep/conformance/chaos/history"
)

// A new key replaces one with usesPerKey uses or lostPerKey unknown outcomes, whose history is expensive to check.
const (
	usesPerKey  = 200
	lostPerKey  = 4
	keysPerKind = 5
)

// keys are the keys of an epoch.
type keys struct {
	epoch int

	mu    sync.Mutex
	slots map[history.Kind][]*slot
	of    map[string]*slot
}

// slot counts the uses of its present key, and those of unknown outcome (lost). generation is the number of that key.
type slot struct{ generation, uses, lost int }

func newKeys(epoch int) *keys {
	k := &keys{epoch: epoch, slots: map[history.Kind][]*slot{}, of: map[string]*slot{}}
	for _, kind := range []history.Kind{history.Lock, history.Hash, history.Register, history.Counter, history.List, history.Queue} {
		for range keysPerKind {
			k.slots[kind] = append(k.slots[kind], &slot{})
		}
	}
	return k
}

// pick returns a key for one use.
func (k *keys) pick(kind history.Kind, rng *rand.Rand) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := rng.IntN(keysPerKind)
	s := k.slots[kind][i]
	if s.uses++; s.uses > usesPerKey || s.lost > lostPerKey {
		*s = slot{generation: s.generation + 1}
	}
	name := fmt.Sprintf("e%d:%s:%d:%d", k.epoch, kind, i, s.generation)
	k.of[name] = s
	return name
}

// lost notes that the outcome of an operation on the key is unknown.
func (k *keys) lost(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of[key].lost++
}
