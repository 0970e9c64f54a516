//go:build linux && !amd64

package sandbox

var (
	oldRefusedCalls              []uint32
	oldModeCalls, oldCreateCalls map[uint32]uint32
)
