package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/lockstep-io/lockstep/conformance/chaos/network"
)

// disk is one node's ext4 file system in a file. It can be full, stall, fail, and lose what was not synced.
type disk struct {
	host  *network.Host
	image string
	dir   string // where it is mounted

	mu     sync.Mutex
	frozen bool
	dead   bool // shut down: every access is an error until it is mounted again
}

const (
	// Blocks that are never written take no room on the machine's disk.
	diskSize = 256 << 20

	// These are from linux/fs.h and fs/ext4/ext4.h.
	fiFreeze     = 0xc0045877
	fiThaw       = 0xc0045878
	ext4Shutdown = 0x8004587d
	// With noLogFlush, a shutdown loses what is not yet in the journal on disk.
	noLogFlush = 2
)

// errNoDisk says that this machine cannot make disks.
var errNoDisk = errors.New("no file system of their own for the nodes")

// newDisk makes and mounts a disk.
func newDisk(h *network.Host, image, dir string) (*disk, error) {
	d := &disk{host: h, image: image, dir: dir}
	f, err := os.Create(image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close(), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: mkfs.ext4: %w: %s", errNoDisk, err, out)
	}
	if err := d.mount(); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoDisk, err)
	}
	return d, nil
}

func (d *disk) mount() error {
	var out []byte
	err := d.host.Do(func() (err error) {
		out, err = exec.Command("mount", "-o", "loop,noatime", d.image, d.dir).CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// control calls ioctl on the file system.
func (d *disk) control(code uintptr, arg uint32) error {
	return d.host.Do(func() error {
		f, err := os.Open(d.dir)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), code, uintptr(unsafe.Pointer(&arg))); e != 0 {
			return os.NewSyscallError("ioctl", e)
		}
		return nil
	})
}

// freeze makes every write and sync wait until thaw.
func (d *disk) freeze() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frozen || d.dead {
		return nil
	}
	err := d.control(fiFreeze, 0)
	d.frozen = err == nil
	return err
}

func (d *disk) thaw() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.frozen {
		return nil
	}
	err := d.control(fiThaw, 0)
	d.frozen = err != nil
	return err
}

// cut loses everything that was not synced. From then on every access to the disk fails.
func (d *disk) cut() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil
	}
	err := d.control(ext4Shutdown, noLogFlush)
	d.dead = err == nil
	return err
}

func (d *disk) failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// repair mounts a disk again after cut. No process may have a file of the disk open.
func (d *disk) repair() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dead {
		return nil
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // polls the kernel
		err := d.host.Do(func() error { return syscall.Unmount(d.dir, 0) })
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return os.NewSyscallError("umount", err)
		}
	}
	d.dead = false
	if err := d.mount(); err != nil {
		return err
	}
	return d.empty()
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill fills the disk completely.
func (d *disk) fill() error {
	return d.host.Do(func() error {
		f, err := os.Create(d.filler())
		if err != nil {
			return err
		}
		defer f.Close()
		var size int64
		for step := int64(64 << 20); step >= 4096; {
			switch err := syscall.Fallocate(int(f.Fd()), 0, size, step); {
			case err == nil:
				size += step
			case errors.Is(err, syscall.ENOSPC):
				step /= 2
			default:
				return os.NewSyscallError("fallocate", err)
			}
		}
		return nil
	})
}

func (d *disk) empty() error {
	return d.host.Do(func() error {
		if err := os.Remove(d.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
}

// need writes large values, because a node notices only when its log grows that its disk is full.
func (x *breaker) need() {
	for range 4 {
		n := x.leading()
		reply, err := n.ask("SET", "need", strings.Repeat("x", 400<<10))
		x.note("%s: write of 400 KiB: %v, %v", n.id, reply, err)
	}
}

// try records the error of an action on a disk. The error does not fail the run, because the disk may have been cut.
func (x *breaker) try(err error) {
	if err != nil {
		x.note("disk: %v", err)
	}
}

// again restarts nodes whose processes have ended.
func (x *breaker) again(list ...*node) {
	for _, n := range list {
		if err := n.start(); err != nil {
			x.fail("%v", err)
		}
	}
}

// diskFaults returns the faults for which each node needs a disk of its own.
func diskFaults() []*fault {
	return []*fault{
		{"disk stalls", "disk", func(x *breaker) {
			n := x.mostly()
			x.note("disk of %s stalls", n.id)
			x.try(n.disk.freeze())
			x.wait(x.hold)
			x.try(n.disk.thaw())
		}},
		{"disk stutters", "disk", func(x *breaker) {
			n := x.mostly()
			x.note("disk of %s stutters", n.id)
			for end := time.Now().Add(x.hold); time.Now().Before(end) && !x.over(); {
				x.try(n.disk.freeze())
				x.wait(x.between(20*time.Millisecond, 400*time.Millisecond))
				x.try(n.disk.thaw())
				x.wait(x.between(20*time.Millisecond, 200*time.Millisecond))
			}
		}},
		{"disk full", "disk", fullDisk},
		{"disk fails", "disk", func(x *breaker) {
			n := x.mostly()
			x.note("disk of %s fails", n.id)
			n.excuse()
			x.try(n.disk.cut())
			x.wait(x.hold)
			n.kill()
			x.again(n)
		}},
		{"power cut", "disk", func(x *breaker) {
			n := x.mostly()
			x.note("power cut at %s", n.id)
			n.excuse()
			x.try(n.disk.cut())
			n.kill()
			x.wait(x.hold / 2)
			x.again(n)
		}},
		{"power cut everywhere", "disk", func(x *breaker) {
			var wg sync.WaitGroup
			for _, n := range x.s.f.nodes {
				n.excuse()
				wg.Go(func() {
					x.try(n.disk.cut())
					n.kill()
				})
			}
			wg.Wait()
			x.wait(x.hold / 4)
			x.again(x.s.f.nodes...)
		}},
	}
}

// fullDisk leaves a node without room on its disk. One time in three, it also restarts the node while there is no room.
func fullDisk(x *breaker) {
	n := x.mostly()
	x.note("disk of %s is full", n.id)
	n.excuse()
	x.try(n.disk.fill())
	x.need()
	x.wait(x.hold / 2)
	if x.rng.IntN(3) == 0 {
		x.note("%s is started while its disk is full", n.id)
		n.kill()
		x.again(n)
	}
	x.wait(x.hold / 2)
	x.try(n.disk.empty())
	x.again(n)
}
