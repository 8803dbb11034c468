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

// monitorSlack is how much later than it asks for the kernel may wake the runtime's
// monitor.
const monitorSlack = 2 * time.Millisecond

// errThreads: some threads that run goroutines could not be reached.
var errThreads = errors.New("the timer slack of some threads could not be set")

// relaxMonitor has the runtime's monitor look after system calls less often, and is called
// before anything else runs.
//
// While a thread is in a system call the monitor looks every 20 µs whether that lasts, and
// then hands the thread's place to another one. A write to a fast disk takes a few of these
// looks, so each batch costs the switch to a thread that finds nothing to do, the switch
// back, and a timer of the kernel for every look: a fifth to a quarter of a durable node's
// CPU time. With a slack (prctl(2), PR_SET_TIMERSLACK) these timers fire when the kernel has
// something else to do, at the latest after the slack. A system call that does last is
// noticed as ever, some milliseconds later.
//
// Nothing names the monitor's thread. So all threads get the slack, and those that run
// goroutines give it back, for their timers are the node's. Threads that these start
// inherit that.
func relaxMonitor() error {
	usual, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_GET_TIMERSLACK, 0, 0)
	switch {
	case errno != 0:
		return fmt.Errorf("the timer slack: %w", errno)
	case usual >= uintptr(monitorSlack):
		return nil
	}
	// With one processor none starts another that would only look for work.
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
		return fmt.Errorf("the timer slack of all threads: %w", errno) // a program with cgo cannot
	}
	return nil
}

// restoreSlack sets the timer slack of all threads but the monitor.
func restoreSlack(slack uintptr) error {
	// The monitor starts threads itself when none is idle, so there will be some. Neither it
	// nor the one that starts others while their starter is locked runs goroutines.
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
		// They become idle, and one that waits for timers waits for this one.
		time.Sleep(time.Millisecond)
		// One that was started meanwhile may be by a thread before it was reached; in another
		// such round all have been.
		if missed > unreachable {
			complete = 0
		} else if complete++; complete == 2 {
			return nil
		}
	}
	return errThreads
}

// setSlack sets the timer slack of n threads at the same time, so of n different ones, and
// returns their ids.
func setSlack(n int, slack uintptr) (ids []int, err error) {
	var mu sync.Mutex
	prctl := func() syscall.Errno {
		_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, slack, 0)
		return errno
	}
	set := func() {
		prctl() // the thread that starts others is started by the first lock, and inherits
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
