//go:build linux && !amd64

package sandbox

// Architectures other than amd64 have no older calls.
var (
	oldRefusedCalls              []uint32
	oldModeCalls, oldCreateCalls map[uint32]uint32
)
