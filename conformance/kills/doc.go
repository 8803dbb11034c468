// Package kills kills the leader of three real nodes, again and again, while 50 clients on all nodes take locks, count and append.
// It judges the replies to the clients. No acknowledged lock may be lost, held by two owners or shortened. No command may be
// executed twice. The clients of a node that lives must not get an error.
//
// The judge never asks the servers what is right. It uses the acknowledgements and a single clock: that of this process.
package kills
