package web

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// mostShown is how many characters of a text a page shows.
	mostShown = 200
	// mostAddress is how many bytes a name may take in the address of a page: browsers and the node bound it.
	mostAddress = 6000
)

// visible returns a text of strangers as a page shows it: control characters, and those that turn or hide text, as escapes.
func visible(text string) string {
	var b strings.Builder
	shown := 0
	for i := 0; i < len(text); {
		if shown++; shown > mostShown {
			fmt.Fprintf(&b, "… (%d bytes)", len(text))
			break
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case hidden(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// typed returns a text for a field of a form, without what visible escapes: an escape would change what the form sends.
func typed(text string) string {
	return strings.Map(func(r rune) rune {
		if hidden(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, text)
}

// hidden reports whether a character is one that controls, turns or hides a text.
func hidden(r rune) bool {
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Bidi_Control, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// lockPath is the address of the page of a lock.
func lockPath(path string, db int, key string) string {
	return path + "?db=" + strconv.Itoa(db) + "&key=" + url.QueryEscape(key)
}

// whole returns a field if it is a text that was not cut, and fits into an address.
func whole(o object, name string) string {
	text, _ := o[name].(string)
	if len(url.QueryEscape(text)) > mostAddress {
		return ""
	}
	return text
}

// rowID returns the id of an element about a name.
func rowID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "l" + hex.EncodeToString(sum[:8])
}

// lease shows the rest of a lease.
func lease(o object) string {
	ttl := o.Number("ttl")
	if ttl < 0 {
		return "never"
	}
	return span(ttl)
}

// heldFor shows for how long an owner has held a lock.
func heldFor(o object) string { return span(o.Number("age")) }

// client shows which client holds a lock: its name, its address, and its node and id.
func client(o object) string {
	node := o.Text("node")
	if node == "" {
		return ""
	}
	addr := o.Text("addr")
	if text, is := o["addr"].(string); is && text == "" {
		addr = "gone"
	}
	return strings.Join(strings.Fields(o.Text("name")+" "+addr+" "+node+":"+o.Text("client")), " ")
}

// span shows a number of milliseconds.
func span(ms int64) string {
	switch d := time.Duration(min(ms, 1<<43)) * time.Millisecond; {
	case ms < 0:
		return ""
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	default:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	}
}

// at shows a Unix time in milliseconds.
func at(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05.000") }

// state returns the class of a word's colour. The word itself says the same.
func state(word string) string {
	switch word {
	case "leader", "voter", "granted", "renewed":
		return "good"
	case "down", "forced", "expired", "gap":
		return "bad"
	case "catching-up", "revoked":
		return "busy"
	}
	return ""
}

var functions = template.FuncMap{
	"visible": visible, "typed": typed, "whole": whole, "rowID": rowID, "lease": lease, "heldFor": heldFor, "client": client, "span": span, "at": at, "state": state,
	"seconds": func(s int64) string { return span(min(s, 1<<40) * 1000) },
	"lock":    func(db int, key string) string { return lockPath("/ui/lock", db, key) },
}
