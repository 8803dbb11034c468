package lock

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownProgram is the path of this program, even if its file has been replaced since.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// dieWithParent lets the kernel kill this process when the thread that started it ends, also after exec by the calling thread, and only by
// that one. The kernel does not do that for what this process starts, nor for a program with more rights (set-user-ID, capabilities); for
// those there is the guard.
func dieWithParent() error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0)
}
