// Package hostile attacks real nodes, one or three. Meanwhile innocent clients take, renew and release locks, and the package
// judges whether they notice the attack.
//
// An attack is a list of inputs that a seed decides. An input says what is sent to a listener of a node, by whom, over how many
// connections, and how the answers are read. The package does not know how nodes talk to each other: it records frames of the peer
// port from a real link and changes them. The judge checks only what can be seen from outside:
//
//   - the nodes' processes live, and the innocents get their answers within a bound;
//   - no lock of an innocent is lost, held by two or shortened, and the nodes' states are equal;
//   - a user who may not read or write a key does not;
//   - memory stays within a bound (in a cgroup where there can be one), and the attack leaves
//     nothing behind: memory, connections, goroutines, subscriptions, keys, users, parameters,
//     members, globals of scripts.
//
// If a round breaks one of these rules, it is played again on new nodes with fewer and fewer inputs. The fewest inputs that break a
// rule are printed.
package hostile
