package nodes

import (
	"os/exec"
	"strings"
	"testing"
)

// StartDiscoverable starts n nodes that can be found by Sentinel and Cluster
// clients, too, where the program has these listeners.
func StartDiscoverable(t testing.TB, n int, flags ...string) []*Node {
	t.Helper()
	// -h ends with an exit code of its own; what it prints is all that counts.
	help, _ := exec.Command(Binary(t), "serve", "-h").CombinedOutput()
	addrs := FreeAddrs(t, 2*n)
	return start(t, n, flags, func(node *Node) (own []string) {
		sentinel, cluster := addrs[0], addrs[1]
		addrs = addrs[2:]
		if strings.Contains(string(help), "sentinel-listen") {
			node.SentinelAddr = sentinel
			own = append(own, "--sentinel-listen", sentinel)
		}
		if strings.Contains(string(help), "cluster-listen") {
			node.ClusterAddr = cluster
			own = append(own, "--cluster-listen", cluster)
		}
		return own
	})
}
