// Package kills kills the leader of three real nodes, again and again, while 50
// clients on all of them take locks, count and append, and judges what the
// clients were told: no acknowledged lock may be lost, held by two or shortened,
// nothing may be executed twice, and the clients of a node that lives must not
// see an error.
//
// The judge never asks the servers what is right. It knows what they have
// acknowledged, by one clock, that of this process.
package kills
