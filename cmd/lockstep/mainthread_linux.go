package main

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// keepMainThread keeps the process's main thread from all work except waiting for signals, until the process ends.
//
// If the main thread does not block a signal for the process, the kernel gives the signal to that thread. While the thread hangs in
// a write to a disk that does not answer, the signal waits there, although other threads could take it. SIGTERM would not end a
// leader whose disk hangs. So a goroutine takes the main thread, and never gives it back.
//
// A program usually does that with runtime.LockOSThread in a function init. That is too early here, because relaxMonitor has to
// come before the first call of LockOSThread.
func keepMainThread() error {
	const rounds = 10
	for range rounds {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		if takeMainThread(len(threads)) {
			return nil
		}
		// Another goroutine or a system call had the main thread, which may become idle during this sleep.
		time.Sleep(time.Millisecond)
	}
	return errors.New("it was busy")
}

// takeMainThread locks n goroutines to different threads at the same time, and reports whether one of these is the main thread. The
// goroutine on the main thread stays locked. If n is the number of all threads and the main thread is idle, takeMainThread always
// gets the main thread: the runtime starts no new thread while one is idle.
func takeMainThread(n int) bool {
	var here sync.WaitGroup
	var taken atomic.Bool
	done := make(chan struct{})
	for range n {
		here.Add(1)
		go func() {
			runtime.LockOSThread()
			if syscall.Gettid() == syscall.Getpid() {
				taken.Store(true)
				here.Done()
				select {}
			}
			here.Done()
			<-done
			runtime.UnlockOSThread()
		}()
	}
	here.Wait()
	close(done)
	return taken.Load()
}
