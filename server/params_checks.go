package server

import (
	"math"
	"math/bits"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// checkHz accepts the integers from 0 to math.MaxInt32. As Redis does, it returns the nearest integer from 1 to 500.
func checkHz(value string) (canonical, fault string) {
	n, ok := redistext.ParseInt([]byte(value))
	switch {
	case !ok:
		return "", faultNoInteger
	case n < 0 || n > math.MaxInt32:
		return "", faultRange(0, math.MaxInt32)
	}
	return strconv.FormatInt(min(max(n, 1), 500), 10), ""
}

// checkOff returns the check for activedefrag: only no is possible, because Go's memory management does not defragment.
func checkOff(fault string) func(string) (string, string) {
	return func(value string) (string, string) {
		switch {
		case strings.EqualFold(value, "no"):
			return "no", ""
		case strings.EqualFold(value, "yes"):
			return "", fault
		}
		return "", faultNoBool
	}
}

// checkHostname accepts up to 255 of the characters that a host name may have.
func checkHostname(value string) (canonical, fault string) {
	const most = 256
	if len(value) >= most {
		return "", "Hostnames must be less than " + strconv.Itoa(most) + " characters"
	}
	for _, c := range []byte(value) {
		if c != '-' && c != '.' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return "", "Hostnames may only contain alphanumeric characters, hyphens or dots"
		}
	}
	return value, ""
}

// titleVariables are the variables of proc-title-template, each with true if the text that replaces it may be empty.
var titleVariables = map[string]bool{
	"title": true, "server-mode": true, "unixsocket": true, "listen-addr": false, "port": false, "tls-port": false, "config-file": false,
}

// checkTitle accepts a template with known variables only, whose title is never blank.
func checkTitle(value string) (canonical, fault string) {
	const bad = "template format is invalid or contains unknown variables"
	shown := ""
	for rest := value; rest != ""; {
		text, variable, found := strings.Cut(rest, "{")
		shown += text
		if !found {
			break
		}
		if after, quoted := strings.CutPrefix(variable, "{"); quoted {
			shown, rest = shown+"{", after
			continue
		}
		name, after, closed := strings.Cut(variable, "}")
		empty, known := titleVariables[name]
		if !closed || !known {
			return "", bad
		}
		if !empty {
			shown += "x"
		}
		rest = after
	}
	if strings.Trim(shown, " ") == "" {
		return "", bad
	}
	return value, ""
}

// checkPassword refuses a password that is too long for any client to send. The cluster would keep it, and nobody could log
// in.
func checkPassword(value string) (canonical, fault string) {
	if len(value) > MaxPassword {
		return "", "argument is too long, a client can send a password of at most " + strconv.Itoa(MaxPassword) + " bytes"
	}
	return value, ""
}

// memoryOf parses an amount of memory as Redis does, but returns math.MaxUint64 for any amount beyond 64 bits.
func memoryOf(value string) (n uint64, ok bool) {
	digits := strings.TrimRight(value, "bBkKmMgG")
	unit, ok := store.ParseMemory("1" + value[len(digits):])
	if !ok || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	if digits == "" {
		return 0, true
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	high, low := bits.Mul64(number, uint64(unit))
	if err != nil || high > 0 {
		return math.MaxUint64, true
	}
	return low, true
}

// absolute makes the path of a directory absolute, as CONFIG GET dir shows it.
func absolute(dir string) string {
	if full, err := filepath.Abs(dir); err == nil {
		return full
	}
	return dir // there is no working directory: the path stays relative
}
