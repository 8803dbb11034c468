package peers

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter is the thread that starts all servers. The kernel kills the servers when that thread ends, so it lives as long as this
// program.
var starter struct {
	sync.Once
	work chan func()
}

// startTied starts a command that ends when this program ends, even by SIGKILL: then only the kernel can end the command.
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
