package nodes

import "testing"

// StartAudited starts n nodes that write the events of locks to a directory each (AuditDir).
func StartAudited(t testing.TB, n int, flags ...string) []*Node {
	t.Helper()
	return StartSetup(t, n, Setup{Flags: flags, of: func(node *Node, _ []string) []string { return []string{"--audit-dir", node.AuditDir()} }})
}

// AuditDir is the directory for the events of locks of a node that StartAudited has started.
func (n *Node) AuditDir() string { return n.Data + ".audit" }
