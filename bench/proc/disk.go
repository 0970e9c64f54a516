package proc

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// FlushTime is the median time that the disk under dir takes to write and flush 8 KiB: the least time of a commit.
func FlushTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "flush-")
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	block := make([]byte, 8<<10)
	times := make([]time.Duration, 101)
	for i := range times {
		start := time.Now()
		if _, err := f.WriteAt(block, 0); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}
