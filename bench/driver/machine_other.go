//go:build !linux

package driver

import (
	"os"
	"runtime"
)

func dataSync(f *os.File) error { return f.Sync() }

func kernel() string { return runtime.GOOS }

func fileSystem(string) string { return "unknown" }
