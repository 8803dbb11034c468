// Package names tests nodes that know each other by name while their IP addresses change, as in Kubernetes.
package names
