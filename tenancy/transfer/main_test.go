package transfer

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	argonMemory = 64 // TestMoveApp in cmd/stoa derives keys with all of it
	goleak.VerifyTestMain(m)
}
