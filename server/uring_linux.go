package server

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uring sends to many sockets with one system call, through an io_uring instance (io_uring(7)). The call never waits: every send has ended
// when it returns.
//
// This saves context switches: a client that a single send wakes often takes the server's processor before the next send.
//
// Where io_uring is forbidden or turned off (--without io_uring), each reply needs its own system call.
type uring struct {
	fd    int
	rings []byte // both queues, in memory shared with the kernel
	slots []byte // the entries of the submission queue, in memory shared with the kernel

	tail   *uint32      // the tail of the submission queue
	array  []uint32     // the submission queue: indexes in sqes
	sqes   []sendEntry  // the entries in slots
	head   *uint32      // the head of the completion queue
	filled *uint32      // the tail of the completion queue
	cqes   []completion // the completion queue

	lent    [uringEntries][]byte // what is being sent; the references protect it from the garbage collector
	results [uringEntries]int32  // for each send, the number of bytes sent, or the negative errno
	n       int                  // how many sends the next call of run has to make
}

// uringEntries is the most sends in one call, which delays everything else on its processor. It must be a power of two.
const uringEntries = 64

// These constants come from the kernel's include/uapi/linux/io_uring.h.
const (
	uringOpSend = 26

	uringFeatSingleMmap = 1 << 0
	// uringFeatNativeWorkers exists since Linux 5.12. In older versions, the queues count as locked
	// memory, of which a process may often have only little (RLIMIT_MEMLOCK).
	uringFeatNativeWorkers = 1 << 9

	uringGetEvents = 1 << 0

	uringOffRings   = 0
	uringOffEntries = 0x10000000
)

// sendEntry is a struct io_uring_sqe.
type sendEntry struct {
	op       uint8
	flags    uint8
	priority uint16
	fd       int32
	offset   uint64
	addr     uint64
	length   uint32
	msgFlags uint32
	userData uint64
	_        [3]uint64
}

// completion is a struct io_uring_cqe.
type completion struct {
	userData uint64
	result   int32
	flags    uint32
}

// uringParams is a struct io_uring_params.
type uringParams struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
	_                                                    [3]uint32
	sq                                                   submissionOffsets
	cq                                                   completionOffsets
}

// submissionOffsets is a struct io_sqring_offsets: offsets in the mapped queues.
type submissionOffsets struct {
	head, tail, mask, entries, flags, dropped, array uint32
	_                                                uint32
	_                                                uint64
}

// completionOffsets is a struct io_cqring_offsets.
type completionOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags uint32
	_                                                uint32
	_                                                uint64
}

var (
	errOldKernel  = errors.New("io_uring: the kernel is older than 5.12")
	errUringStuck = errors.New("io_uring takes nothing")
)

// newUring sets up an io_uring instance. It returns an error if the kernel is too old, or if io_uring is forbidden.
func newUring() (*uring, error) {
	var p uringParams
	fd, _, errno := unix.RawSyscall(unix.SYS_IO_URING_SETUP, uringEntries, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("io_uring_setup", errno)
	}
	u := &uring{fd: int(fd)}
	if err := u.mapQueues(&p); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

// mapQueues maps the memory that the kernel and this process share. It fails on an old kernel.
func (u *uring) mapQueues(p *uringParams) (err error) {
	const needed = uringFeatSingleMmap | uringFeatNativeWorkers
	if p.features&needed != needed {
		return errOldKernel
	}
	size := max(p.sq.array+p.sqEntries*uint32(unsafe.Sizeof(uint32(0))), p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(completion{})))
	const shared = unix.MAP_SHARED | unix.MAP_POPULATE
	if u.rings, err = unix.Mmap(u.fd, uringOffRings, int(size), unix.PROT_READ|unix.PROT_WRITE, shared); err != nil {
		return os.NewSyscallError("mmap of the queues of io_uring", err)
	}
	size = p.sqEntries * uint32(unsafe.Sizeof(sendEntry{}))
	if u.slots, err = unix.Mmap(u.fd, uringOffEntries, int(size), unix.PROT_READ|unix.PROT_WRITE, shared); err != nil {
		return os.NewSyscallError("mmap of the entries of io_uring", err)
	}
	at := func(offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&u.rings[offset])) }
	u.tail, u.head, u.filled = at(p.sq.tail), at(p.cq.head), at(p.cq.tail)
	u.array = unsafe.Slice(at(p.sq.array), p.sqEntries)
	u.sqes = unsafe.Slice((*sendEntry)(unsafe.Pointer(&u.slots[0])), p.sqEntries)
	u.cqes = unsafe.Slice((*completion)(unsafe.Pointer(&u.rings[p.cq.cqes])), p.cqEntries)
	return nil
}

// add makes the next call of run send p to the socket fd. Before run, the caller must not add more than uringEntries sends.
func (u *uring) add(fd int, p []byte) {
	i := u.n
	u.n++
	u.lent[i], u.results[i] = p, 0
	slot := (*u.tail + uint32(i)) & uint32(len(u.sqes)-1)
	u.sqes[slot] = sendEntry{op: uringOpSend, fd: int32(fd), addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))), length: uint32(len(p)),
		msgFlags: unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT, userData: uint64(i)}
	u.array[slot] = slot
}

// run makes the sends that were added since the last run. After an error, the caller must close u once it has read the results.
func (u *uring) run() error {
	n := u.n
	u.n = 0
	if n == 0 {
		return nil
	}
	atomic.StoreUint32(u.tail, *u.tail+uint32(n))
	err := u.enter(n)
	runtime.KeepAlive(&u.lent)
	return err
}

// result returns the bytes of the i-th send, and how many were sent. It must be called once for each send, because it drops the reference
// to the bytes. An error of the socket occurs again at the next send.
func (u *uring) result(i int) (p []byte, sent int) {
	p, u.lent[i] = u.lent[i], nil
	return p, int(max(u.results[i], 0))
}

// enter gives the kernel n sends, and collects their results.
func (u *uring) enter(n int) error {
	for taken, ended := 0, 0; ended < n; {
		// The call does not wait, so RawSyscall6 need not tell Go's scheduler of it.
		k, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(u.fd), uintptr(n-taken), uintptr(n-ended), uringGetEvents, 0, 0)
		ended += u.reap()
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return os.NewSyscallError("io_uring_enter", errno)
		case k == 0 && taken < n:
			return errUringStuck
		default:
			taken += int(k) // the kernel takes no entry behind an invalid one
		}
	}
	return nil
}

// reap reads the results in the completion queue, and returns their number.
func (u *uring) reap() int {
	head, tail := *u.head, atomic.LoadUint32(u.filled)
	for i := head; i != tail; i++ {
		c := &u.cqes[i&uint32(len(u.cqes)-1)]
		u.results[c.userData%uringEntries] = c.result
	}
	atomic.StoreUint32(u.head, tail)
	return int(tail - head)
}

// close frees all memory and the descriptor.
func (u *uring) close() {
	for _, mapped := range [][]byte{u.rings, u.slots} {
		if mapped != nil {
			_ = unix.Munmap(mapped)
		}
	}
	_ = unix.Close(u.fd)
}
