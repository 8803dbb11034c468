package peers

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter is the thread that starts all servers and lives as long as this
// program: the kernel sends Pdeathsig when the thread that started a process ends.
var starter struct {
	sync.Once
	work chan func()
}

// startTied starts a command that ends with this program, however the program
// ends: after a SIGKILL only the kernel can end the command.
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
