// Package packages tests the Debian and RPM packages and the systemd units in deploy/: what is in them, that they are built the same
// everywhere, and how a node runs under a systemd of its own, in namespaces.
package packages
