package turns

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxFile is the largest file of certificates or keys that is read.
const maxFile = 1 << 20

// ReadFile reads a file of certificates, a key or a secret. It refuses what is no regular file, because a device does not
// end and a pipe may never answer.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file: name the file itself", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes: it is none of what it is said to be", path, maxFile)
	}
	return b, err
}
