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

// keepMainThread keeps the process's main thread from other work than waiting for signals, until the process ends.
//
// The kernel gives a signal for the process to its main thread, if that thread does not block the signal. If the thread hangs in a
// write to a disk that does not answer, the signal waits there, although other threads could take it: SIGTERM would not end a
// leader whose disk hangs. So a goroutine takes the main thread, and never gives it back.
//
// A program usually does that with runtime.LockOSThread in a function init. But relaxMonitor has to come before the first call of
// LockOSThread.
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
		// Another goroutine, or a system call, had the main thread. During this sleep it may become idle.
		time.Sleep(time.Millisecond)
	}
	return errors.New("it was busy")
}

// takeMainThread locks n goroutines to different threads at the same time, and reports whether one of these is the main thread.
// That goroutine stays locked. If n is the number of all threads, and the main thread is idle, it is always among them: the
// runtime starts no new thread while one is idle.
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
