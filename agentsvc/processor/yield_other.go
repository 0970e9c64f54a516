//go:build !linux

package processor

import "runtime"

func yieldThread() { runtime.Gosched() }
