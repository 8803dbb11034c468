package store

// KeyFacts says what a key of a state is, for `lockstep inspect`.
type KeyFacts struct {
	DB   int
	Key  string
	Type Type
	Kind string // of a lock, as in LOCK.LIST; "": the key is no lock
	// Token is 0 if tokens are not counted.
	Token  uint64
	TTL    int64 // ms that were left at the last write set; -1: no deadline
	Value  string
	Owners []OwnerFacts // of a lock, at most mostOwners
	Held   int          // the number of all owners
}

// OwnerFacts says who holds a lock.
type OwnerFacts struct {
	Name  string
	Holds int64
	Token uint64
	TTL   int64
}

// mostOwners is how many owners of a lock KeyFacts has.
const mostOwners = 1000

// EachKey passes the keys of a state that no node serves to the function fn, until fn returns false. now is the time of the last write
// set, whose number is seq.
func (s *Store) EachKey(now Time, seq uint64, fn func(KeyFacts) bool) {
	c, goOn := Ctx{Txn: s.Begin(now, seq, Env{}), RESP: 2}, true
	for db := 0; db < Databases && goOn; db++ {
		c.DB = db
		c.Ascend(db, 0, func(e *Entry) bool {
			goOn = fn(c.facts(e))
			return goOn
		})
	}
}

func (c *Ctx) facts(e *Entry) KeyFacts {
	at, leased := e.until()
	f := KeyFacts{DB: c.DB, Key: e.key, Type: e.typ, Kind: c.kindOf(e), Token: c.Token(c.DB, e), TTL: c.ttlOf(at, leased)}
	if e.typ == TypeString {
		f.Value = e.str
	}
	if f.Kind == "" {
		return f
	}
	c.eachHolder(e, f.Kind, func(h lockHolder) bool {
		if f.Held++; len(f.Owners) < mostOwners {
			f.Owners = append(f.Owners, OwnerFacts{h.owner, h.holds, h.token, c.ttlOf(h.until, h.leased)})
		}
		return true
	})
	return f
}

// LastToken returns the last token that was given, or 0 if tokens are not counted.
func (s *Store) LastToken() uint64 { return s.tokens.last }
