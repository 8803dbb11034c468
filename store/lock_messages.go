package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// The messages about locks. They have JSON texts; bytes of a name that are not UTF-8 become U+FFFD.

// LockChannels begins the names of the channels on which lockstep itself tells of locks.
const LockChannels = "__lock@"

// eventChannel is the channel of an event of locks.
func eventChannel(db int, event string) string {
	return LockChannels + strconv.Itoa(db) + "__:" + event
}

// grantedChannel is the channel that tells an owner that its ticket has become a lock.
func grantedChannel(db int, owner string) string { return eventChannel(db, "granted:"+owner) }

// grantedMessage is the message for an owner with a ticket. granted is the reply of LOCK.ACQUIRE.
func grantedMessage(key []byte, granted []Reply) string {
	return message(struct {
		Key   string `json:"key"`
		Token int64  `json:"token"`
		TTL   int64  `json:"ttl"`
	}{valid(key), granted[0].Int, granted[1].Int})
}

// TicketEnded returns the channel and the message that tell an owner that its ticket has ended with an error.
func TicketEnded(db int, key, owner string, e Error) (channel, text string) {
	return grantedChannel(db, owner), message(struct {
		Key   string `json:"key"`
		Error string `json:"error"`
	}{valid([]byte(key)), valid([]byte(e))})
}

// revokedMessage is the message of LOCK.REVOKE.
func revokedMessage(key, reason []byte, token uint64) string {
	return message(struct {
		Key    string `json:"key"`
		Reason string `json:"reason"`
		Token  uint64 `json:"token"`
	}{valid(key), valid(reason), token})
}

// forcedMessage is the message of LOCK.FORCE. It names one of the owners that have lost the lock.
func forcedMessage(key, reason []byte, kind, user string, ended []lockHolder) string {
	m := struct {
		Key    string `json:"key"`
		Kind   string `json:"kind"`
		Owner  string `json:"owner"`
		Owners int    `json:"owners"`
		Token  uint64 `json:"token"`
		User   string `json:"user"`
		Reason string `json:"reason"`
	}{Key: valid(key), Kind: kind, Owners: len(ended), User: valid([]byte(user)), Reason: valid(reason)}
	if len(ended) > 0 {
		m.Owner, m.Token = valid([]byte(ended[0].owner[:min(len(ended[0].owner), MaxLockName)])), ended[0].token
	}
	return message(m)
}

// valid returns a text that JSON can hold.
func valid(text []byte) string { return string(bytes.ToValidUTF8(text, []byte("\uFFFD"))) }

func message(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("store: a message of strings and numbers cannot be encoded: %v", err))
	}
	return string(text)
}
