package budget_test

import (
	"testing"
	"time"

	"stoa/tenancy/audit"
)

var actor = audit.Actor{Name: "operator"}

var january = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func loadLocation(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}
