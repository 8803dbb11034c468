package store

import "strconv"

// Keyspace notifications. An enabled event goes into the write set as messages, behind the write, so subscribers on every node receive it
// in log order.
//
// Events do not follow from the writes: append, setrange and setbit are one primitive write (opPatch).

// eventClass is a set of the letters of notify-keyspace-events.
type eventClass uint16

const (
	eventKeyspace  eventClass = 1 << iota // K: publish to the key's channel
	eventKeyevent                         // E: publish to the event's channel
	eventGeneric                          // g
	eventString                           // $
	eventList                             // l
	eventSet                              // s
	eventHash                             // h
	eventSortedSet                        // z
	eventExpired                          // x
	eventEvicted                          // e
	eventStream                           // t
	eventModule                           // d
	eventMiss                             // m
	eventNew                              // n
)

// eventAll is the set that the letter A stands for.
const eventAll = eventGeneric | eventString | eventList | eventSet | eventHash | eventSortedSet |
	eventExpired | eventEvicted | eventStream | eventModule

// eventLetters are the letters in the order in which Redis prints them. A stands for the first ten; n is printed
// only if A is not.
var eventLetters = []struct {
	letter byte
	class  eventClass
}{
	{'g', eventGeneric}, {'$', eventString}, {'l', eventList}, {'s', eventSet}, {'h', eventHash},
	{'z', eventSortedSet}, {'x', eventExpired}, {'e', eventEvicted}, {'t', eventStream}, {'d', eventModule},
	{'n', eventNew}, {'K', eventKeyspace}, {'E', eventKeyevent}, {'m', eventMiss},
}

// parseEvents parses a value of notify-keyspace-events.
func parseEvents(value string) (set eventClass, ok bool) {
	for i := range len(value) {
		class := eventClass(0)
		if value[i] == 'A' {
			class = eventAll
		}
		for _, l := range eventLetters {
			if l.letter == value[i] {
				class = l.class
			}
		}
		if class == 0 {
			return 0, false
		}
		set |= class
	}
	return set, true
}

// CanonicalEvents converts a value of notify-keyspace-events to the form of CONFIG GET. If that has A, it lacks n, as in Redis.
func CanonicalEvents(value string) (canonical string, ok bool) {
	set, ok := parseEvents(value)
	if !ok {
		return "", false
	}
	var text []byte
	if set&eventAll == eventAll {
		text = append(text, 'A')
		set &^= eventAll | eventNew
	}
	for _, l := range eventLetters {
		if set&l.class != 0 {
			text = append(text, l.letter)
		}
	}
	return string(text), true
}

// notify publishes an event on a key, if its class is enabled. The caller calls it after the write.
func (t *Txn) notify(class eventClass, event string, db int, key string) {
	if t.events&class != 0 {
		t.publishEvent(event, db, key)
	}
}

// maxEventKey is the longest key with events, in bytes: each event repeats the key, and all must fit into a log entry.
const maxEventKey = 1 << 20

func (t *Txn) publishEvent(event string, db int, key string) {
	if len(key) > maxEventKey {
		return
	}
	if t.events&eventKeyspace != 0 {
		t.message(Channel, "__keyspace@"+strconv.Itoa(db)+"__:"+key, event)
	}
	if t.events&eventKeyevent != 0 {
		t.message(Channel, "__keyevent@"+strconv.Itoa(db)+"__:"+event, key)
	}
}

// event is c.notify for a key of the command's database.
func (c *Ctx) event(class eventClass, event string, key []byte) {
	if c.events&class != 0 {
		c.publishEvent(event, c.DB, string(key))
	}
}

// eventOn is c.event for the key at Args[1].
func (c *Ctx) eventOn(class eventClass, event string) {
	if c.events&class != 0 {
		c.publishEvent(event, c.DB, string(c.Args[1]))
	}
}

// eventIfGone publishes the event del if the key no longer exists: the command has removed the last element of its collection.
func (c *Ctx) eventIfGone(key []byte) {
	if c.events&eventGeneric != 0 && c.Txn.Lookup(c.DB, key) == nil {
		c.publishEvent("del", c.DB, string(key))
	}
}

// Lookup is Txn.Lookup for a command that reads the key: if the key does not exist, it publishes the event keymiss.
func (c *Ctx) Lookup(db int, key []byte) *Entry {
	e := c.Txn.Lookup(db, key)
	if e == nil && c.events&eventMiss != 0 {
		c.publishEvent("keymiss", db, string(key))
	}
	return e
}

// stored publishes the event for the key of a command's result or, after an empty result, the event del if the key existed.
func (c *Ctx) stored(class eventClass, event string, key []byte, existed, empty bool) {
	switch {
	case !empty:
		c.event(class, event, key)
	case existed:
		c.event(eventGeneric, "del", key)
	}
}

// overwrite deletes a key and lets write create it. If the key existed and exists again, no event "new" is published and no client woken.
func (c *Ctx) overwrite(key []byte, write func()) (existed bool) {
	wanted, ready := c.events, len(c.ready)
	if existed = c.discard(key); existed {
		c.events &^= eventNew
	}
	defer func() { c.events = wanted }() // write may panic: Ctx.Call ends a command in this way
	write()
	if existed && c.peek(c.DB, bytesToString(key)) != nil {
		c.ready = c.ready[:ready]
	}
	return existed
}
