package stripe_test

import (
	"errors"
	"testing"

	"stoa/agentsvc"
)

func requireNoErrors(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var invalid *agentsvc.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Errorf("error %v, want one about %s", err, field)
	}
}
