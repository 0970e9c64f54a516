//go:build linux && !amd64

package sandbox

var (
	oldRefusedCalls            []uint32
	oldModeCalls, oldMakeCalls map[uint32]uint32
)
