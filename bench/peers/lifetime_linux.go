package peers

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter is the thread that starts all servers. It lives as long as this program, because the kernel sends Pdeathsig to a process
// when the thread that started it ends.
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
