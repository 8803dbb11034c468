//go:build !linux

package main

func keepMainThread() error { return nil } // only Linux is known to give a signal to a thread that hangs
