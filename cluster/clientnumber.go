package cluster

import "hash/fnv"

// A client has a number in the log, so that every node knows who has taken a lock: the id that CLIENT ID shows, and, in clientBits bits each,
// hashes of the node's id and of the run id of its process. After a restart, a node gives the same ids to other clients.
const (
	clientBits = 12
	clientMask = 1<<clientBits - 1
)

func clientHash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it never fails
	sum := h.Sum64()
	return (sum ^ sum>>32) & clientMask
}

// ClientNumbers returns the number of the client 0 of a node's process. The number of another client is larger by ClientStep for each id.
func ClientNumbers(node, run string) uint64 { return clientHash(node)<<clientBits | clientHash(run) }

// ClientStep stands between the numbers of two clients.
const ClientStep = 1 << (2 * clientBits)

// clientOf says on which node the client with a number is, and its id there; node is "" if no known node has such clients. alive is false if
// the process that had the client runs no more.
func (n *Node) clientOf(number uint64) (node string, id uint64, alive bool) {
	t := n.Topology()
	for i := range t.Nodes {
		if of := &t.Nodes[i]; clientHash(of.ID) == number>>clientBits&clientMask {
			return of.ID, number / ClientStep, clientHash(of.RunID) == number&clientMask
		}
	}
	return "", 0, false
}

// ClientOf is clientOf for clients of any time.
func (n *Node) ClientOf(number uint64) (node string, id uint64) {
	node, id, _ = n.clientOf(number)
	return node, id
}
