// Package cluster makes a node a member of a replicated lock server: it puts
// client requests in order, has the leader evaluate them once, replicates what
// they wrote, and answers when a majority has it on disk.
//
// What a node keeps on its disk is the work of package datadir (internal/datadir).
package cluster
