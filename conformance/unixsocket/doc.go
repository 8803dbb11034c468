// Package unixsocket runs test suites of lock libraries that start a redis-server from the PATH and talk to it over a Unix socket.
// There, a small program of that name starts lockstep and leads the socket to it; the suites are the libraries' own, unchanged.
package unixsocket
