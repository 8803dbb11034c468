package transcript

import (
	"fmt"
	"strconv"
	"strings"
)

// expandAll replaces ${...} in every argument.
func (p *player) expandAll(args []string) ([]string, error) {
	out := make([]string, len(args))
	for i, a := range args {
		var err error
		if out[i], err = p.expand(a); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *player) expand(s string) (string, error) {
	head, rest, found := strings.Cut(s, "${")
	if !found {
		return s, nil
	}
	name, rest, found := strings.Cut(rest, "}")
	if !found {
		return "", fmt.Errorf("${ without } in %q", s)
	}
	value, err := p.variable(name)
	if err != nil {
		return "", err
	}
	rest, err = p.expand(rest)
	return head + value + rest, err
}

// variable returns what a transcript cannot contain: a connection's id or address, or a time by the server's clock.
func (p *player) variable(name string) (string, error) {
	if kind, conn, ok := strings.Cut(name, ":"); ok {
		w := p.conns[conn]
		if w == nil {
			return "", fmt.Errorf("${%s}: no such connection", name)
		}
		switch kind {
		case "id":
			if w.id != "" {
				return w.id, nil
			}
			v, err := w.ask("CLIENT", "ID")
			w.id = v.Text
			return w.id, err
		case "addr":
			return w.conn.LocalAddr().String(), nil
		case "laddr":
			return w.conn.RemoteAddr().String(), nil
		}
	}
	for _, unit := range []string{"unixms", "unix"} {
		if offset, ok := strings.CutPrefix(name, unit); ok {
			return p.clock(unit, offset)
		}
	}
	return "", fmt.Errorf("unknown variable ${%s}", name)
}

// clock asks the server for its time, which may differ from ours.
func (p *player) clock(unit, offset string) (string, error) {
	n, err := strconv.ParseInt(offset, 10, 64)
	if err != nil {
		return "", err
	}
	v, err := p.control.ask("TIME")
	if err != nil {
		return "", err
	}
	if len(v.Elems) != 2 {
		return "", fmt.Errorf("TIME: %s", strings.Join(v.Lines(), " "))
	}
	sec, err := strconv.ParseInt(v.Elems[0].Text, 10, 64)
	if err != nil {
		return "", err
	}
	micro, err := strconv.ParseInt(v.Elems[1].Text, 10, 64)
	if err != nil {
		return "", err
	}
	if unit == "unixms" {
		sec = sec*1000 + micro/1000
	}
	return strconv.FormatInt(sec+n, 10), nil
}
