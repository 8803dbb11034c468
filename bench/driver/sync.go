package driver

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

const (
	blockSize  = 4096
	syncsTaken = 100
)

// syncTimes measures how long a block takes to reach the disk. The blocks of the file exist beforehand, so a sync writes only data.
func syncTimes(dir string) (times []time.Duration, err error) {
	name := filepath.Join(dir, "sync")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(name)) }()
	if _, err := f.Write(make([]byte, syncsTaken*blockSize)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	block := make([]byte, blockSize)
	for i := range syncsTaken {
		block[0] = byte(i + 1)
		began := time.Now()
		if _, err := f.WriteAt(block, int64(i)*blockSize); err != nil {
			return nil, err
		}
		if err := dataSync(f); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}
