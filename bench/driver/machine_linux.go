package driver

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

func dataSync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// kernel is the system and its version.
func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + strings.TrimSpace(string(release))
}

// fileSystem names the file system of a directory, if it is a usual one; the
// types are from statfs(2).
func fileSystem(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	switch st.Type {
	case 0x01021994:
		return "tmpfs: memory"
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x794c7630:
		return "overlayfs"
	}
	return fmt.Sprintf("file system %#x", st.Type)
}
