package store

import "strconv"

// Keyspace notifications. A command says what it did to a key; if the cluster
// wants to know (notify-keyspace-events), that goes into the write set as
// ordinary messages, behind the write itself. So subscribers of every node hear
// of it once it is committed, in the order of the log, and nothing is written
// while nobody has asked.
//
// A node could derive most of them from the writes, but not Redis's names for them:
// rename_to and set are the same write.

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

// eventAll is what A stands for.
const eventAll = eventGeneric | eventString | eventList | eventSet | eventHash | eventSortedSet |
	eventExpired | eventEvicted | eventStream | eventModule

// eventLetters are the letters in the order in which Redis prints them. A
// stands for the first ten; n is printed only beside single ones.
var eventLetters = []struct {
	letter byte
	class  eventClass
}{
	{'g', eventGeneric}, {'$', eventString}, {'l', eventList}, {'s', eventSet}, {'h', eventHash},
	{'z', eventSortedSet}, {'x', eventExpired}, {'e', eventEvicted}, {'t', eventStream}, {'d', eventModule},
	{'n', eventNew}, {'K', eventKeyspace}, {'E', eventKeyevent}, {'m', eventMiss},
}

// parseEvents reads a value of notify-keyspace-events.
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

// CanonicalEvents brings a value of notify-keyspace-events into the form in
// which CONFIG GET prints it. What it leaves out, n beside A, is in force all
// the same, as in Redis.
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

// notify publishes that an event has happened to a key. It is called after the
// write.
func (t *Txn) notify(class eventClass, event string, db int, key string) {
	if t.events&class != 0 {
		t.publishEvent(event, db, key)
	}
}

func (t *Txn) publishEvent(event string, db int, key string) {
	if t.events&eventKeyspace != 0 {
		t.message(Channel, "__keyspace@"+strconv.Itoa(db)+"__:"+key, event)
	}
	if t.events&eventKeyevent != 0 {
		t.message(Channel, "__keyevent@"+strconv.Itoa(db)+"__:"+event, key)
	}
}

// event is notify for a key of the command's database.
func (c *Ctx) event(class eventClass, event string, key []byte) {
	if c.events&class != 0 {
		c.publishEvent(event, c.DB, string(key))
	}
}

// eventOn is event for the key at Args[1].
func (c *Ctx) eventOn(class eventClass, event string) {
	if c.events&class != 0 {
		c.publishEvent(event, c.DB, string(c.Args[1]))
	}
}

// eventIfGone tells of a collection that has been deleted with its last
// element; before is how many it had and removed how many were taken away.
func (c *Ctx) eventIfGone(key []byte) {
	if c.events&eventGeneric != 0 && c.Txn.Lookup(c.DB, key) == nil {
		c.publishEvent("del", c.DB, string(key))
	}
}

// Lookup is Txn.Lookup for a command that reads the key: others can be told
// that it was not there.
func (c *Ctx) Lookup(db int, key []byte) *Entry {
	e := c.Txn.Lookup(db, key)
	if e == nil && c.events&eventMiss != 0 {
		c.publishEvent("keymiss", db, string(key))
	}
	return e
}

// stored tells what became of the key that a command stores its result in.
// An empty result is no key; then the event is that an old one is gone.
func (c *Ctx) stored(class eventClass, event string, key []byte, existed, empty bool) {
	switch {
	case !empty:
		c.event(class, event, key)
	case existed:
		c.event(eventGeneric, "del", key)
	}
}

// overwrite deletes a key, if there is one, and has write make it anew: that
// does not count as a new key, and nobody who waits for it is served.
func (c *Ctx) overwrite(key []byte, write func()) (existed bool) {
	wanted, ready := c.events, len(c.ready)
	if existed = c.discard(key); existed {
		c.events &^= eventNew
	}
	write()
	c.events = wanted
	if existed {
		c.ready = c.ready[:ready]
	}
	return existed
}
