package usage_test

import (
	"testing"
	"time"
)

const actor = "operator"

var january = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func requireNoErrors(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
