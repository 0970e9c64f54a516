//go:build !linux

package extract

// limitResources does nothing: the watch of the heap is the only bound of memory.
func limitResources() {}
