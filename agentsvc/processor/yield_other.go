//go:build !linux

package processor

import "runtime"

// yieldThread lets other goroutines run. Other systems have no portable call that yields to other processes.
func yieldThread() { runtime.Gosched() }
