// Package show prints the replies of a node: as text that controls no terminal, or as JSON for programs. A stranger may answer in the place
// of a node, so the package trusts no reply.
package show
