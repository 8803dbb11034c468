//go:build !linux

package server

import "testing"

var loopTests []func(*testing.T)
