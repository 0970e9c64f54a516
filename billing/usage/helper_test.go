package usage_test

import (
	"time"
)

const actor = "operator"

var january = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
