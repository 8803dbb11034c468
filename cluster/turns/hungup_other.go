//go:build !linux

package turns

import "net"

// hungUp reports false: on systems other than Linux, the node notices the end of a connection only when it reads or writes.
func hungUp(net.Conn) bool { return false }
