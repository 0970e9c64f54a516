package usage_test

import (
	"time"

	"stoa/tenancy/audit"
)

var actor = audit.Actor{Name: "operator"}

var january = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
