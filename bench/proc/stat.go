package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks is USER_HZ, the unit of the times in /proc/PID/stat; Linux fixes it at 100 for every program.
const ticks = 100

// ErrFormat is returned for a file of /proc that does not read as proc(5) says.
var ErrFormat = errors.New("unknown format")

// Stat is one reading of /proc/PID/stat.
type Stat struct {
	Parent int
	Self   time.Duration // user and system time of the process
	Waited time.Duration // the same of its children that have ended and been waited for
}

// ReadStat reads the times of the process pid.
func ReadStat(pid int) (Stat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, fmt.Errorf("read the process's times: %w", err)
	}
	return parseStat(string(raw))
}

// parseStat reads what follows the command's name, which stands in brackets and may hold anything.
func parseStat(line string) (Stat, error) {
	end := strings.LastIndexByte(line, ')')
	if end < 0 {
		return Stat{}, fmt.Errorf("process times: %w", ErrFormat)
	}
	fields := strings.Fields(line[end+1:])
	const state, ppid, utime, stime, cutime, cstime = 0, 1, 11, 12, 13, 14
	if len(fields) <= cstime {
		return Stat{}, fmt.Errorf("process times: %w", ErrFormat)
	}
	var n [cstime + 1]int64
	for _, i := range []int{ppid, utime, stime, cutime, cstime} {
		v, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Stat{}, fmt.Errorf("process times: %w", ErrFormat)
		}
		n[i] = v
	}
	return Stat{Parent: int(n[ppid]), Self: span(n[utime] + n[stime]), Waited: span(n[cutime] + n[cstime])}, nil
}

func span(n int64) time.Duration { return time.Duration(n) * time.Second / ticks }

// CPU is the processor time that pid has used so far, its children left out.
func CPU(pid int) (time.Duration, error) {
	s, err := ReadStat(pid)
	return s.Self, err
}

// TreeCPU is the processor time that pid and its direct children have used so far, those that have ended included.
// A server with one process per connection, such as PostgreSQL, is counted whole.
func TreeCPU(pid int) (time.Duration, error) {
	root, err := ReadStat(pid)
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list the processes: %w", err)
	}
	sum := root.Self + root.Waited
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := ReadStat(child); err == nil && s.Parent == pid {
			sum += s.Self
		}
	}
	return sum, nil
}

// RSS is the memory that pid holds now, in bytes.
func RSS(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the process's memory: %w", err)
	}
	return parseKB(string(raw), "VmRSS:")
}

// parseKB finds the line that starts with key in a file of "Key:  123 kB" lines and returns its bytes.
func parseKB(text, key string) (int64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s %w", key, ErrFormat)
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("%s %w", key, ErrFormat)
}
