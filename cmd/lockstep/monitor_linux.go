package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// monitorSlack is how much later than requested the kernel may wake the Go runtime's monitor thread (sysmon).
const monitorSlack = 2 * time.Millisecond

// errThreads says that the old timer slack may not have been set again for some threads that run goroutines.
var errThreads = errors.New("the timer slack of some threads could not be set")

// relaxMonitor makes the runtime's monitor check less often whether a system call has ended. The caller must call relaxMonitor before
// it starts other work.
//
// While a thread is in a system call, the monitor checks every 20 µs whether the call still lasts. If it does, the monitor gives the
// thread's processor (a P of Go's scheduler) to another thread. A write to the log lasts for a few checks, so it costs two switches of
// threads, and timers. With a timer slack (prctl(2), PR_SET_TIMERSLACK) these timers may fire later.
//
// Nothing identifies the monitor's thread. So relaxMonitor gives all threads the slack, and then gives the threads that run goroutines
// the old value back, because the node's timers depend on them.
func relaxMonitor() error {
	usual, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_GET_TIMERSLACK, 0, 0)
	switch {
	case errno != 0:
		return fmt.Errorf("the timer slack: %w", errno)
	case usual >= uintptr(monitorSlack):
		return nil
	}
	// With GOMAXPROCS 1, no thread starts another thread only to look for work.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := setAllSlack(uintptr(monitorSlack)); err != nil {
		return err
	}
	if err := restoreSlack(usual); err != nil {
		return errors.Join(err, setAllSlack(usual))
	}
	return nil
}

// setAllSlack sets the timer slack of all threads.
func setAllSlack(slack uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, slack, 0); errno != 0 {
		return fmt.Errorf("the timer slack of all threads: %w", errno) // AllThreadsSyscall fails in a program with cgo
	}
	return nil
}

// restoreSlack sets the timer slack of all threads that run goroutines. These are all threads but two (see below).
func restoreSlack(slack uintptr) error {
	// The first round leaves some idle threads (stock), so that the monitor starts none, which would inherit its slack. setSlack
	// cannot reach the monitor, and the template thread, which starts new threads in place of locked ones.
	const rounds, stock, unreachable = 10, 32, 2
	reached := map[string]bool{}
	complete, more := 0, stock
	for range rounds {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		ids, err := setSlack(len(threads)+more, slack)
		if err != nil {
			return err
		}
		more = 0
		for _, id := range ids {
			reached[strconv.Itoa(id)] = true
		}
		missed := 0
		for _, t := range threads {
			if !reached[t.Name()] {
				missed++
			}
		}
		// During this sleep the threads become idle. A thread that waits for the runtime's next timer is free again when the sleep ends.
		time.Sleep(time.Millisecond)
		// A round is complete if it missed only the unreachable threads. One complete round is not enough: a thread missed before may
		// have started another.
		if missed > unreachable {
			complete = 0
		} else if complete++; complete == 2 {
			return nil
		}
	}
	return errThreads
}

// setSlack sets the timer slack of n threads, and returns their ids. Goroutines stay locked to their threads until all are set, so all
// differ.
func setSlack(n int, slack uintptr) (ids []int, err error) {
	var mu sync.Mutex
	prctl := func() syscall.Errno {
		_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, slack, 0)
		return errno
	}
	set := func() {
		prctl() // the process's first LockOSThread starts the template thread (restoreSlack), which inherits this slack
		runtime.LockOSThread()
		errno := prctl()
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, syscall.Gettid())
		if errno != 0 {
			err = fmt.Errorf("the timer slack of a thread: %w", errno)
		}
	}
	set()
	defer runtime.UnlockOSThread()
	var here, ended sync.WaitGroup
	done := make(chan struct{})
	for range n - 1 {
		here.Add(1)
		ended.Go(func() {
			defer runtime.UnlockOSThread()
			set()
			here.Done()
			<-done
		})
	}
	here.Wait()
	close(done)
	ended.Wait()
	return ids, err
}
