package extract

import "golang.org/x/sys/unix"

// limitResources bounds the private memory of this process and forbids it to write files. Errors are ignored: the
// watch of the heap is left, and the sandbox has bounds of its own.
func limitResources() {
	for what, most := range map[int]uint64{unix.RLIMIT_DATA: maxDataBytes, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0} {
		var now unix.Rlimit
		if unix.Getrlimit(what, &now) != nil {
			continue
		}
		most = min(most, now.Max)
		_ = unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most})
	}
}
