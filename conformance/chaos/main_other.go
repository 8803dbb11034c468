//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "chaos: needs Linux: nodes get network namespaces of their own")
	os.Exit(2)
}
