package history

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/lockstep-io/lockstep/store"
)

// line is an event in JSON: the text of a message, and a line of an audit file. A name that is not UTF-8 is there in base64, too.
type line struct {
	Seq     uint64 `json:"seq"`
	At      string `json:"at"`
	Lease   int64  `json:"lease"`
	DB      int    `json:"db"`
	Event   string `json:"event"`
	Key     string `json:"key,omitempty"`
	Key64   string `json:"key64,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Owner64 string `json:"owner64,omitempty"`
	Token   uint64 `json:"token,omitempty"`
	Holds   int64  `json:"holds"`
	Permits int64  `json:"permits,omitempty"`
	Limit   int64  `json:"limit,omitempty"`
	Until   int64  `json:"until,omitempty"`
	Node    string `json:"node,omitempty"`
	Client  uint64 `json:"client,omitempty"`
	User    string `json:"user,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// AppendJSON appends the event as a JSON object.
func (e *Event) AppendJSON(b []byte) []byte {
	l := line{Seq: e.Seq, At: time.UnixMilli(e.At).UTC().Format(timeFormat), Lease: e.Lease, DB: e.DB, Event: e.How.String(), Key: e.Key, Kind: e.Kind, Owner: e.Owner,
		Token: e.Token, Holds: e.Holds, Permits: e.Permits, Limit: e.Limit, Until: e.Deadline, Node: e.Node, Client: e.ClientID, User: e.User, Reason: e.Reason}
	l.Key64, l.Owner64 = inBase64(e.Key), inBase64(e.Owner)
	text, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("history: an event of strings and numbers cannot be encoded: %v", err))
	}
	return append(b, text...)
}

func inBase64(name string) string {
	if utf8.ValidString(name) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(name))
}

// ParseJSON reads what AppendJSON has written.
func ParseJSON(text []byte) (e Event, err error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return e, err
	}
	at, err := time.Parse(timeFormat, l.At)
	if err != nil {
		return e, err
	}
	how, known := store.LockHowOf(l.Event)
	if !known {
		return e, fmt.Errorf("unknown event %.40q", l.Event)
	}
	e = Event{LockEvent: store.LockEvent{How: how, DB: l.DB, Key: l.Key, Kind: l.Kind, Owner: l.Owner, Token: l.Token, Holds: l.Holds, Permits: l.Permits, Limit: l.Limit,
		Deadline: l.Until, User: l.User, Reason: l.Reason}, Seq: l.Seq, At: at.UnixMilli(), Lease: l.Lease, Node: l.Node, ClientID: l.Client}
	for _, name := range []struct {
		to   *string
		text string
	}{{&e.Key, l.Key64}, {&e.Owner, l.Owner64}} {
		if name.text == "" {
			continue
		}
		bytes, err := base64.StdEncoding.DecodeString(name.text)
		if err != nil {
			return e, err
		}
		*name.to = string(bytes)
	}
	return e, nil
}
