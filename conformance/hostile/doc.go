// Package hostile attacks real nodes, one or three, while innocent clients take,
// renew and release locks, and judges whether these notice.
//
// An attack is a list of inputs made by a seed: what is sent to a listener of a
// node, by whom, over how many connections, and how the answers are read. Nothing
// here knows how nodes talk to each other: frames of the peer port are recorded from
// a real link and changed. What the judge checks can be seen from outside, too:
//
//   - the nodes' processes live, and the innocents are answered within a bound;
//   - no lock of theirs is lost, held by two or shortened, and the nodes' states are equal;
//   - who may not read or write a key does not;
//   - memory stays within a bound (in a cgroup where there can be one), and nothing of the
//     attack is left: memory, connections, goroutines, subscriptions, keys, users, parameters,
//     members, globals of scripts.
//
// A round that breaks one of these is played again on new nodes with ever fewer
// inputs, and the fewest are printed.
package hostile
