//go:build !linux

package processor

import "runtime"

func yield() { runtime.Gosched() }
