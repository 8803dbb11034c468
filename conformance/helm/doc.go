// Package helm tests the chart in deploy/helm. It is a module of its own, so that the server's module does not depend on Helm and on the types
// of Kubernetes.
package helm
