package datadir

// WriteSnapshot is for crash_test.go, which needs a disk that imports this package.
var WriteSnapshot = writeSnapshot
