// Package unixsocket runs test suites of lock libraries that start a redis-server from the PATH and talk to it over a Unix socket.
// A small program of that name takes the place of redis-server: it starts lockstep. The suites are
// those of the libraries, unchanged.
package unixsocket
