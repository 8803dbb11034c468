package store

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// model is a second, very plain implementation of the commands, for comparison. Its error replies are "-CODE".
type model struct {
	now int64
	dbs [Databases]map[string]*modelValue
	db  int
}

type modelValue struct {
	str      string
	hash     map[string]string
	list     []string
	set      map[string]bool
	scores   map[string]float64 // a string has none of these four
	deadline int64
}

func (v *modelValue) clone() *modelValue {
	c := *v
	c.hash, c.set, c.scores, c.list = maps.Clone(v.hash), maps.Clone(v.set), maps.Clone(v.scores), slices.Clone(v.list)
	return &c
}

func (v *modelValue) typ() Type {
	switch {
	case v.hash != nil:
		return TypeHash
	case v.list != nil:
		return TypeList
	case v.set != nil:
		return TypeSet
	case v.scores != nil:
		return TypeSortedSet
	}
	return TypeString
}

// text is valueText for a value of the model.
func (v *modelValue) text() string {
	var elems []string
	switch v.typ() {
	case TypeString:
		return fmt.Sprintf("%q until %d", v.str, v.deadline)
	case TypeHash:
		for f, x := range v.hash {
			elems = append(elems, fmt.Sprintf("%q=%q", f, x))
		}
		sort.Strings(elems)
	case TypeList:
		for _, x := range v.list {
			elems = append(elems, strconv.Quote(x))
		}
	case TypeSet:
		elems = quoted(v.set)
	case TypeSortedSet:
		for _, m := range v.sorted() {
			elems = append(elems, fmt.Sprintf("%q:%s", m.Member, FormatFloat(m.Score)))
		}
	}
	return fmt.Sprintf("%s %v until %d", v.typ(), elems, v.deadline)
}

// quoted lists the keys of a map.
func quoted(m map[string]bool) (list []string) {
	for x := range m {
		list = append(list, strconv.Quote(x))
	}
	sort.Strings(list)
	return list
}

// sorted lists the members of a sorted set in its order.
func (v *modelValue) sorted() (list []Scored) {
	for name, score := range v.scores {
		list = append(list, Scored{name, score})
	}
	sort.Slice(list, func(i, j int) bool { return scoredLess(list[i], list[j]) })
	return list
}

func newModel() *model {
	m := &model{}
	for i := range m.dbs {
		m.dbs[i] = map[string]*modelValue{}
	}
	return m
}

func (m *model) clone() *model {
	c := newModel()
	c.now, c.db = m.now, m.db
	for i, db := range m.dbs {
		for k, v := range db {
			c.dbs[i][k] = v.clone()
		}
	}
	return c
}

// purge deletes the expired keys, so that the commands of the model need not check for them.
func (m *model) purge() {
	for _, db := range m.dbs {
		maps.DeleteFunc(db, func(_ string, v *modelValue) bool { return v.deadline != 0 && m.now > v.deadline })
	}
}

// dump lists the keyspace of the model in the form in which modelDump lists the real one.
func (m *model) dump() string {
	m.purge()
	var lines []string
	for i, db := range m.dbs {
		for k, v := range db {
			lines = append(lines, fmt.Sprintf("%d %q %s", i, k, v.text()))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func modelDump(txn *Txn) string {
	var lines []string
	for db := range Databases {
		txn.Ascend(db, 0, func(e *Entry) bool {
			lines = append(lines, fmt.Sprintf("%d %q %s", db, e.key, valueText(e)))
			return true
		})
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

const modelWrongType = "-WRONGTYPE"

// run runs a command, whose arguments must be legal.
func (m *model) run(args ...string) string {
	m.purge()
	db := m.dbs[m.db]
	v := db[""]
	if len(args) > 1 {
		v = db[args[1]]
	}
	switch args[0] {
	case "select":
		m.db, _ = strconv.Atoi(args[1])
		return "+OK"
	case "swapdb":
		a, _ := strconv.Atoi(args[1])
		b, _ := strconv.Atoi(args[2])
		m.dbs[a], m.dbs[b] = m.dbs[b], m.dbs[a]
		return "+OK"
	case "flushdb":
		clear(db)
		return "+OK"
	case "dbsize":
		return num(len(db))
	case "keys":
		return m.keys()
	case "exists":
		n := 0
		for _, k := range args[1:] {
			n += one(db[k] != nil)
		}
		return num(n)
	case "delex":
		if len(args) == 2 {
			delete(db, args[1])
			return num(one(v != nil))
		}
	case "del":
		n := 0
		for _, k := range args[1:] {
			n += one(db[k] != nil)
			delete(db, k)
		}
		return num(n)
	case "msetnx":
		return m.msetnx(args[1:])
	case "rename", "renamenx", "copy", "move":
		return m.relocate(v, args)
	case "pexpire", "pttl", "persist":
		return m.expiry(v, args)
	}
	switch {
	case strings.HasPrefix(args[0], "h"):
		return m.hash(v, args)
	case modelLists[args[0]] != nil:
		return m.elems(v, TypeList, args, modelLists[args[0]])
	case modelSets[args[0]] != nil:
		return m.elems(v, TypeSet, args, modelSets[args[0]])
	case modelSortedSets[args[0]] != nil:
		return m.elems(v, TypeSortedSet, args, modelSortedSets[args[0]])
	case strings.HasSuffix(args[0], "store"):
		return m.store(args)
	case args[0] == "lmove":
		return m.lmove(v, args)
	case args[0] == "smove":
		return m.smove(v, args)
	}
	return m.str(v, args)
}

func num(n int) string { return ":" + strconv.Itoa(n) }

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m *model) keys() string {
	var keys []string
	for k := range m.dbs[m.db] {
		keys = append(keys, strconv.Quote(k))
	}
	sort.Strings(keys)
	return "[" + strings.Join(keys, " ") + "]"
}

func (m *model) msetnx(pairs []string) string {
	db := m.dbs[m.db]
	for i := 0; i < len(pairs); i += 2 {
		if db[pairs[i]] != nil {
			return num(0)
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		db[pairs[i]] = &modelValue{str: pairs[i+1]}
	}
	return num(1)
}

func (m *model) relocate(v *modelValue, args []string) string {
	from, to, name := m.dbs[m.db], m.dbs[m.db], args[2]
	if args[0] == "move" {
		n, _ := strconv.Atoi(args[2])
		to, name = m.dbs[n], args[1]
		if n == m.db {
			return "-ERR"
		}
	}
	if args[0] == "copy" && name == args[1] {
		return "-ERR"
	}
	if v == nil {
		if strings.HasPrefix(args[0], "rename") {
			return "-ERR"
		}
		return num(0)
	}
	if args[0] == "rename" {
		delete(from, args[1])
		to[name] = v
		return "+OK"
	}
	if to[name] != nil && !(args[0] == "copy" && len(args) > 3) {
		return num(0)
	}
	to[name] = v.clone()
	if args[0] != "copy" {
		delete(from, args[1])
	}
	return num(1)
}

func (m *model) expiry(v *modelValue, args []string) string {
	if v == nil {
		return map[string]string{"pexpire": ":0", "pttl": ":-2", "persist": ":0"}[args[0]]
	}
	old := v.deadline
	switch args[0] {
	case "pttl":
		if old == 0 {
			return num(-1)
		}
		return num(int(old - m.now))
	case "persist":
		v.deadline = 0
		return num(one(old != 0))
	}
	ms, _ := strconv.Atoi(args[2])
	at := m.now + int64(ms)
	for _, flag := range args[3:] {
		switch {
		case flag == "nx" && old != 0,
			flag == "xx" && old == 0,
			flag == "gt" && (old == 0 || at <= old),
			flag == "lt" && old != 0 && at >= old:
			return num(0)
		}
	}
	v.deadline = at
	if ms <= 0 {
		delete(m.dbs[m.db], args[1])
	}
	return num(1)
}

func (m *model) str(v *modelValue, args []string) string {
	if args[0] == "set" {
		return m.set(v, args)
	}
	if v != nil && v.typ() != TypeString {
		return modelWrongType
	}
	old := "nil"
	if v != nil {
		old = strconv.Quote(v.str)
	}
	db, key := m.dbs[m.db], args[1]
	switch args[0] {
	case "get":
		return old
	case "getset":
		db[key] = &modelValue{str: args[2]}
		return old
	case "getdel":
		delete(db, key)
		return old
	case "delex", "delifeq":
		deleted := v != nil && (v.str == args[len(args)-1]) == (args[2] != "ifne" || args[0] == "delifeq")
		if deleted {
			delete(db, key)
		}
		return num(one(deleted))
	case "getex":
		if v != nil {
			ms, _ := strconv.Atoi(args[3])
			v.deadline = m.now + int64(ms)
		}
		return old
	}
	if v == nil {
		v = &modelValue{}
	}
	reply := m.edit(v, db[key] != nil, args)
	if v.str != "" || args[0] == "append" {
		db[key] = v
	}
	return reply
}

// edit runs the commands that change a string. exists says whether the key exists.
func (m *model) edit(v *modelValue, exists bool, args []string) string {
	switch args[0] {
	case "append":
		v.str += args[2]
	case "setrange":
		at, _ := strconv.Atoi(args[2])
		s := []byte(v.str)
		for args[3] != "" && len(s) < at+len(args[3]) {
			s = append(s, 0)
		}
		copy(s[min(at, len(s)):], args[3])
		v.str = string(s)
	case "incrby":
		n, _ := strconv.Atoi(v.str)
		if exists && strconv.Itoa(n) != v.str {
			return "-ERR"
		}
		by, _ := strconv.Atoi(args[2])
		v.str = strconv.Itoa(n + by)
		return num(n + by)
	}
	return num(len(v.str))
}

func (m *model) set(v *modelValue, args []string) string {
	reply, refused := "+OK", "nil"
	next := &modelValue{str: args[2]}
	ok := true
	for i := 3; i < len(args); i++ {
		switch args[i] {
		case "nx":
			ok = v == nil
		case "xx":
			ok = v != nil
		case "ifeq", "ifne":
			if v != nil && v.typ() != TypeString {
				return modelWrongType
			}
			i++
			ok = (v != nil && v.str == args[i]) == (args[i-1] == "ifeq")
		case "get":
			if v != nil && v.typ() != TypeString {
				return modelWrongType
			}
			reply = "nil"
			if v != nil {
				reply = strconv.Quote(v.str)
			}
			refused = reply
		case "keepttl":
			if v != nil {
				next.deadline = v.deadline
			}
		case "px":
			i++
			ms, _ := strconv.Atoi(args[i])
			next.deadline = m.now + int64(ms)
		}
	}
	if !ok {
		return refused
	}
	m.dbs[m.db][args[1]] = next
	return reply
}

func (m *model) hash(v *modelValue, args []string) string {
	if v != nil && v.hash == nil {
		return modelWrongType
	}
	fields := map[string]string{}
	if v != nil {
		fields = v.hash
	}
	switch args[0] {
	case "hget":
		if x, ok := fields[args[2]]; ok {
			return strconv.Quote(x)
		}
		return "nil"
	case "hlen":
		return num(len(fields))
	case "hdel":
		n := len(fields)
		for _, f := range args[2:] {
			delete(fields, f)
		}
		if len(fields) == 0 {
			delete(m.dbs[m.db], args[1])
		}
		return num(n - len(fields))
	}
	n, reply := len(fields), ""
	switch args[0] {
	case "hset":
		for i := 2; i < len(args); i += 2 {
			fields[args[i]] = args[i+1]
		}
		reply = num(len(fields) - n)
	case "hsetnx":
		if _, ok := fields[args[2]]; ok {
			return num(0)
		}
		fields[args[2]] = args[3]
		reply = num(1)
	case "hincrby":
		old, ok := fields[args[2]]
		x, _ := strconv.Atoi(old)
		if ok && strconv.Itoa(x) != old {
			return "-ERR"
		}
		by, _ := strconv.Atoi(args[3])
		fields[args[2]] = strconv.Itoa(x + by)
		reply = num(x + by)
	}
	if v == nil {
		m.dbs[m.db][args[1]] = &modelValue{hash: fields}
	}
	return reply
}
