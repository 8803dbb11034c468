// Package web serves the dashboard (/ui/) and the JSON interface (/api/v1/) of a node.
//
// Each login has connections of its own to the node's server, as a client of a RESP port has. They are pipes in this process, and bear
// the address of the browser. What a page shows and does are commands on these connections. So there is one path, and one check of the
// rights, for all that a user may do, and the ACL log and the statistics of commands have it, too.
//
// Names, owners, reasons and messages are texts of strangers. Templates escape them, and visible shows what a terminal or a browser would
// obey.
//
// Invariants:
//   - No password is kept: only the hash by which a session ends when the user's password changes.
//   - Sessions, streams, queues, the memory of a reply and that of the login throttle have limits.
//   - The package does not ask for the time; Config.Now gives it.
package web
