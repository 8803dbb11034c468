package respclient

import (
	"fmt"
)

// Pairs sends a command whose reply is a list of names and values, and returns the reply as a map.
func (c *Conn) Pairs(args ...string) (map[string]string, error) {
	reply, err := c.Do(args...)
	if err != nil {
		return nil, err
	}
	return Pairs(reply)
}

// Pairs makes a map of a reply that is a list of names and values.
func Pairs(reply any) (map[string]string, error) {
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return nil, fmt.Errorf("resp: not a list of names and values: %v", reply)
	}
	m := make(map[string]string, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m, nil
}
