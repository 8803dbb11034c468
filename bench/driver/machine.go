package driver

import (
	"runtime"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/bench/report"
)

func machine(dir string) report.Machine {
	return report.Machine{CPUs: runtime.NumCPU(), System: kernel(), Go: runtime.Version(), Dir: dir, FileSystem: fileSystem(dir)}
}

// ownCPU is the CPU time that the load generator has used.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
