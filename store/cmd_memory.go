package store

import (
	"github.com/lockstep-io/lockstep/store/redistext"
)

// MemoryUsage implements MEMORY USAGE. The reply is the size that counts against maxmemory
// (size.go), so SAMPLES makes no difference.
func MemoryUsage(c *Ctx) Reply {
	for i := 3; i < len(c.Args); i += 2 {
		if !equalFold(c.Args[i], "samples") || i+1 == len(c.Args) {
			return Err(ErrSyntax)
		}
		n, ok := redistext.ParseInt(c.Args[i+1])
		switch {
		case !ok:
			return notInteger
		case n < 0:
			return Err(ErrSyntax)
		}
	}
	e := c.Lookup(c.DB, c.Args[2])
	if e == nil {
		return Nil
	}
	return Int(e.size())
}

// allocated estimates the bytes that the allocator reserves for a string of n bytes: the allocator rounds sizes up.
func allocated(n int) int64 {
	switch {
	case n == 0:
		return 0
	case n <= 8:
		return 8
	case n <= 512:
		return int64(n+15) &^ 15
	case n > 32<<10: // large sizes are rounded up to whole pages
		return int64(n+8191) &^ 8191
	}
	return int64(n+127) &^ 127
}
