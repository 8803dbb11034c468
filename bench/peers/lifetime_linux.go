package peers

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter is the thread that starts all servers and lives as long as this
// program: what the kernel watches for Pdeathsig is a thread.
var starter struct {
	sync.Once
	work chan func()
}

// startTied starts a command that ends with this program, however that ends:
// nothing else than the kernel outlives a SIGKILL.
func startTied(cmd *exec.Cmd) error {
	starter.Do(func() {
		starter.work = make(chan func())
		go func() {
			runtime.LockOSThread()
			for do := range starter.work {
				do()
			}
		}()
	})
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	err := make(chan error)
	starter.work <- func() { err <- cmd.Start() }
	return <-err
}
