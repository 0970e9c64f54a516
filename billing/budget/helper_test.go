package budget_test

import (
	"errors"
	"testing"
	"time"

	"stoa/agentsvc"
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

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var invalid *agentsvc.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Errorf("error %v, want one about %s", err, field)
	}
}

func loadLocation(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}
