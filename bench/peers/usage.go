package peers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is what servers have used of the machine since they started. A value of -1 could not be measured.
type Usage struct {
	CPU     time.Duration
	Written int64 // bytes written to the disk with their data, by any process
	Sent    int64 // bytes that left their TCP sockets, those to clients included
}

// Minus returns what has been used since the earlier Usage in the argument "before".
func (u Usage) Minus(before Usage) Usage {
	since := func(now, then int64) int64 {
		if now < 0 || then < 0 {
			return -1
		}
		return now - then
	}
	return Usage{
		CPU:     time.Duration(since(int64(u.CPU), int64(before.CPU))),
		Written: since(u.Written, before.Written),
		Sent:    since(u.Sent, before.Sent),
	}
}

// Usage sums up what the servers have used. Written bytes are the disk's: write_bytes of /proc/PID/io counts whole folios of the
// page cache.
func (s *System) Usage() Usage {
	sum := Usage{Written: writtenTo(s.site.Dir), Sent: -1}
	for _, p := range s.processes {
		sum.CPU = plus(sum.CPU, p.cmd.Process.Pid)
	}
	if out, err := exec.Command("ss", "-tinpHO", "state", "established").Output(); err == nil {
		sum.Sent = sentBy(string(out), s.pids())
	}
	return sum
}

// plus adds a process's CPU time to a sum. If either is unknown, so is the result.
func plus(sum time.Duration, pid int) time.Duration {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil || sum < 0 {
		return -1
	}
	used, err := cpuTime(string(stat))
	if err != nil {
		return -1
	}
	return sum + used
}

// Memory returns the servers' resident bytes, -1 if unknown. Servers that know MEMORY PURGE first free what they do not use.
func (s *System) Memory() (sum int64, err error) {
	for _, addr := range s.resp {
		if _, err := s.ask(addr, "MEMORY", "PURGE"); err != nil {
			return -1, err
		}
	}
	for _, p := range s.processes {
		sum = plusResident(sum, p.cmd.Process.Pid)
	}
	return sum, nil
}

// plusResident adds a process's resident memory to a sum. If either is unknown, so is the result.
func plusResident(sum int64, pid int) int64 {
	statm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil || sum < 0 {
		return -1
	}
	pages, err := residentPages(string(statm))
	if err != nil {
		return -1
	}
	return sum + pages*int64(os.Getpagesize())
}

// residentPages reads the number of resident pages from the text of /proc/PID/statm.
func residentPages(statm string) (int64, error) {
	fields := strings.Fields(statm)
	if len(fields) < 2 {
		return 0, errProc
	}
	return strconv.ParseInt(fields[1], 10, 64)
}

func (s *System) pids() map[int]bool {
	pids := map[int]bool{}
	for _, p := range s.processes {
		pids[p.cmd.Process.Pid] = true
	}
	return pids
}

// tick is the unit of the times in /proc/PID/stat; it is the same on every Linux.
const tick = 10 * time.Millisecond

var errProc = errors.New("the kernel's figures do not look as expected")

// cpuTime reads the user and system time from the text of /proc/PID/stat. The process's name, in parentheses, may contain any
// characters.
func cpuTime(stat string) (time.Duration, error) {
	const user = 14 - 3 // the third field is the first one after the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= user+1 {
		return 0, errProc
	}
	u, err := strconv.ParseInt(fields[user], 10, 64)
	if err != nil {
		return 0, err
	}
	s, err := strconv.ParseInt(fields[user+1], 10, 64)
	return time.Duration(u+s) * tick, err
}

// writtenTo returns how many bytes have been written to the disk of a directory; -1 if that is unknown.
func writtenTo(dir string) int64 {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return -1
	}
	dev := uint64(st.Dev)
	major, minor := dev>>8&0xfff|dev>>32&^0xfff, dev&0xff|dev>>12&^0xff
	stat, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", major, minor))
	if err != nil {
		return -1
	}
	n, err := sectorBytes(string(stat))
	if err != nil {
		return -1
	}
	return n
}

// sectorBytes reads the bytes written from a block device's stat file, whose sectors always have 512 bytes.
func sectorBytes(stat string) (int64, error) {
	const written, sector = 6, 512
	fields := strings.Fields(stat)
	if len(fields) <= written {
		return 0, errProc
	}
	n, err := strconv.ParseInt(fields[written], 10, 64)
	return n * sector, err
}

var (
	ssPID  = regexp.MustCompile(`\bpid=(\d+)`)
	ssSent = regexp.MustCompile(`\bbytes_sent:(\d+)`)
)

// sentBy sums up bytes_sent in the output of ss, which leaves it out for a socket that has sent nothing.
func sentBy(list string, pids map[int]bool) (sum int64) {
	for line := range strings.Lines(list) {
		pid, sent := ssPID.FindStringSubmatch(line), ssSent.FindStringSubmatch(line)
		if pid == nil || sent == nil {
			continue
		}
		id, err := strconv.Atoi(pid[1])
		if err != nil || !pids[id] {
			continue
		}
		n, err := strconv.ParseInt(sent[1], 10, 64)
		if err != nil {
			return -1
		}
		sum += n
	}
	return sum
}
