package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Host is a network namespace and a mount namespace with one address.
type Host struct {
	Addr netip.Addr

	ns   *os.File // the network namespace
	tun  *os.File // the switch's end of its only device
	work chan func()
}

// These values of linux/if_tun.h and linux/if.h are not in package syscall.
const (
	tunSetIff  = 0x400454ca
	iffTun     = 0x0001
	iffNoPI    = 0x1000
	ifNameSize = 16
	sysSetns   = 308 // for linux/amd64; the function setns has the number for arm64
	mtu        = 1500
)

// ErrForbidden says that the kernel does not let this process make namespaces or TUN devices.
var ErrForbidden = errors.New("this kernel or user may not make network namespaces with TUN devices")

// newHost makes the namespaces. They live as long as the thread that made them, or a process that was started in them.
func newHost(addr netip.Addr) (*Host, error) {
	h := &Host{Addr: addr, work: make(chan func())}
	made := make(chan error)
	go func() {
		// The thread is never unlocked, so it ends with the goroutine.
		runtime.LockOSThread()
		err := h.make()
		made <- err
		if err != nil {
			return
		}
		for f := range h.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	return h, nil
}

func (h *Host) make() (err error) {
	if err := syscall.Unshare(syscall.CLONE_NEWNET | syscall.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	// Mounts that are made in this namespace do not appear outside it.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if h.ns, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", syscall.Gettid())); err != nil {
		return err
	}
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("open /dev/net/tun", err)
	}
	var req [40]byte
	copy(req[:ifNameSize-1], "tun0")
	*(*uint16)(unsafe.Pointer(&req[ifNameSize])) = iffTun | iffNoPI
	if err := ioctl(fd, tunSetIff, req[:]); err != nil {
		syscall.Close(fd)
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	h.tun = os.NewFile(uintptr(fd), "tun0")
	return h.configure()
}

// configure gives the TUN device its address, and brings up the device and loopback.
func (h *Host) configure() error {
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer syscall.Close(s)
	address := func(a [4]byte) (raw [16]byte) {
		*(*uint16)(unsafe.Pointer(&raw)) = syscall.AF_INET
		copy(raw[4:], a[:])
		return raw
	}
	ip, mask := address(h.Addr.As4()), address([4]byte{255, 255, 255, 0})
	var size, up [16]byte
	*(*int32)(unsafe.Pointer(&size)) = mtu
	*(*uint16)(unsafe.Pointer(&up)) = syscall.IFF_UP | syscall.IFF_RUNNING
	for _, step := range []struct {
		what, device string
		code         uintptr
		value        [16]byte
	}{
		{"SIOCSIFADDR", "tun0", syscall.SIOCSIFADDR, ip},
		{"SIOCSIFNETMASK", "tun0", syscall.SIOCSIFNETMASK, mask},
		{"SIOCSIFMTU", "tun0", syscall.SIOCSIFMTU, size},
		{"SIOCSIFFLAGS", "tun0", syscall.SIOCSIFFLAGS, up},
		{"SIOCSIFFLAGS", "lo", syscall.SIOCSIFFLAGS, up},
	} {
		var req [40]byte
		copy(req[:ifNameSize-1], step.device)
		copy(req[ifNameSize:], step.value[:])
		if err := ioctl(s, step.code, req[:]); err != nil {
			return fmt.Errorf("%s %s: %w", step.what, step.device, err)
		}
	}
	return nil
}

func ioctl(fd int, code uintptr, arg []byte) error {
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), code, uintptr(unsafe.Pointer(&arg[0]))); e != 0 {
		return e
	}
	return nil
}

// Do runs f inside the host, on a thread that lives as long as the host. f may start processes that end with that thread.
func (h *Host) Do(f func() error) error {
	done := make(chan error)
	h.work <- func() { done <- f() }
	return <-done
}

// Dial connects from this host.
func (h *Host) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		// The thread stays in the host's namespace, so it does nothing else: it ends with the goroutine.
		runtime.LockOSThread()
		if _, _, e := syscall.RawSyscall(setns(), h.ns.Fd(), syscall.CLONE_NEWNET, 0); e != 0 {
			done <- result{err: os.NewSyscallError("setns", e)}
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, "tcp4", addr)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// setns returns the number of the system call setns, which package syscall does not name.
func setns() uintptr {
	if runtime.GOARCH == "arm64" {
		return 268
	}
	return sysSetns
}

func (h *Host) close() error {
	close(h.work)
	return errors.Join(h.tun.Close(), h.ns.Close())
}
