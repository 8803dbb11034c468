package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is a server that runs, or one that was stopped: it can be started again with the same command.
type process struct {
	site site
	host int
	name string
	dir  string
	args []string

	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) log() string { return p.dir + "-" + p.name + ".log" }

// start runs the command. The command's output goes to a file beside its data.
func (p *process) start() error {
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.cmd = p.site.command(p.host, p.args[0], p.args[1:]...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, log, log
	if err := p.cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	cmd, done := p.cmd, make(chan struct{})
	p.done = done
	go func() {
		_ = cmd.Wait() // it was killed, so its exit status says nothing
		log.Close()
		close(done)
	}()
	return nil
}

// kill ends the process as kill -9 does.
func (p *process) kill() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// farm has the processes of a system.
type farm struct {
	site site
	dir  string
	list []*process
}

// place adds a process, which the method start starts in the directory of its host.
func (f *farm) place(host int, name string, args ...string) (*process, error) {
	p := &process{site: f.site, host: host, name: name, dir: filepath.Join(f.dir, fmt.Sprint("host", host+1)), args: args}
	f.list = append(f.list, p)
	return p, os.MkdirAll(p.dir, 0o700)
}

func (f *farm) start() error {
	for _, p := range f.list {
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all processes that still run.
func (f *farm) stop() (err error) {
	for _, p := range f.list {
		err = errors.Join(err, p.kill())
	}
	return err
}

// fallen returns an error for each process that has ended by itself. The error has the end of the process's log.
func (f *farm) fallen() (err error) {
	for _, p := range f.list {
		select {
		case <-p.done:
			log, readErr := os.ReadFile(p.log())
			err = errors.Join(err, fmt.Errorf("%s on host %d has ended: %s", p.name, p.host+1, log[max(0, len(log)-500):]), readErr)
		default:
		}
	}
	return err
}

// eventually calls ok again and again, until ok returns nil or the time is over.
func eventually(limit time.Duration, ok func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := ok()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
