package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is the name of a model.
type Kind string

// These are the models.
const (
	Lock     Kind = "lock"     // SET NX PX, LOCK.ACQUIRE; released and renewed by its owner; fencing tokens
	Hash     Kind = "hash"     // a reentrant lock: a hash of owner and count
	Register Kind = "register" // SET, GET
	Counter  Kind = "counter"  // INCR; WATCH, GET, SET
	List     Kind = "list"     // RPUSH, LRANGE
	Queue    Kind = "queue"    // RPUSH, LPOP, BLPOP

	Message Kind = "message" // PUBLISH: no model, but CheckMessages
)

// model is a sequential specification. step returns the states that may follow an operation, or none if the operation's reply cannot be
// right.
type model struct {
	init func() any
	step func(state any, op *Op) []any
}

func models() map[Kind]model {
	return map[Kind]model{
		Lock:     {func() any { return lockState{} }, stepLock},
		Hash:     {func() any { return lockState{} }, stepHash},
		Register: {func() any { return "" }, stepRegister},
		Counter:  {func() any { return int64(0) }, stepCounter},
		List:     {func() any { return "" }, stepList},
		Queue:    {func() any { return "" }, stepQueue},
	}
}

func (m model) porcupine() porcupine.Model {
	pm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.init()} },
		Step: func(state, input, _ any) []any { return m.step(state, input.(*Op)) },
		DescribeOperation: func(input, _ any) string {
			return input.(*Op).String()
		},
		DescribeState: func(state any) string { return fmt.Sprint(state) },
	}
	return pm.ToModel()
}

// Violation is a key whose history no order of its operations explains.
type Violation struct {
	Kind    Kind
	Key     string
	Verdict string
	Ops     []Op

	info  porcupine.LinearizationInfo
	model porcupine.Model
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s %s: %s (%d operations)", v.Kind, v.Key, v.Verdict, len(v.Ops))
}

// Check judges the history of each key separately. It also reports a key whose search does not end within limit.
func Check(ops []Op, limit time.Duration) ([]*Violation, error) {
	type id struct {
		kind Kind
		key  string
	}
	byKey, order := map[id][]Op{}, []id{}
	for _, op := range ops {
		k := id{op.Kind, op.Key}
		if byKey[k] == nil {
			order = append(order, k)
		}
		byKey[k] = append(byKey[k], op)
	}
	known := models()
	var found []*Violation
	for _, k := range order {
		m, ok := known[k.kind]
		if !ok {
			return nil, fmt.Errorf("%s: no model of kind %q", k.key, k.kind)
		}
		if v := checkKey(m.porcupine(), byKey[k], limit); v != nil {
			v.Kind, v.Key = k.kind, k.key
			found = append(found, v)
		}
	}
	return found, nil
}

func checkKey(m porcupine.Model, ops []Op, limit time.Duration) *Violation {
	list := make([]porcupine.Operation, len(ops))
	for i := range ops {
		list[i] = porcupine.Operation{ClientId: ops[i].Client, Input: &ops[i], Call: ops[i].Invoke, Return: ops[i].until()}
	}
	switch porcupine.CheckOperationsTimeout(m, list, limit) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return &Violation{Verdict: fmt.Sprintf("not decided in %v", limit), Ops: ops}
	}
	// Search again, this time for the data of the picture.
	_, info := porcupine.CheckOperationsVerbose(m, list, limit)
	return &Violation{Verdict: "not linearizable", Ops: ops, info: info, model: m}
}

// Save writes the history (.jsonl) and its picture (.html) into a directory.
func (v *Violation) Save(dir string) error {
	name := filepath.Join(dir, strings.Map(func(r rune) rune {
		if strings.ContainsRune("{}:/", r) {
			return '-'
		}
		return r
	}, string(v.Kind)+"-"+v.Key))
	ops := slices.Clone(v.Ops)
	slices.SortFunc(ops, func(a, b Op) int { return int(a.Invoke - b.Invoke) })
	var lines []byte
	for _, op := range ops {
		line, err := json.Marshal(op)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	err := os.WriteFile(name+".jsonl", lines, 0o644)
	if v.model.Step == nil {
		return err
	}
	return errors.Join(err, porcupine.VisualizePath(v.model, v.info, name+".html"))
}
