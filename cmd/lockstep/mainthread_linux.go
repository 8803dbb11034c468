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

// keepMainThread keeps the process's main thread from all work except waiting for signals. The kernel gives a signal to the main
// thread if that thread does not block it. If the thread hung in a write to the disk, SIGTERM would wait there.
//
// A function init would be too early, because relaxMonitor has to come before the first call of runtime.LockOSThread.
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

// takeMainThread locks n goroutines to different threads, and reports whether one got the main thread, which that goroutine keeps. If
// n is the number of all threads, an idle main thread is among them: the runtime starts no new thread while one is idle.
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
