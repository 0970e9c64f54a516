// Package agentsvctest has what the tests of several packages check about errors.
package agentsvctest

import (
	"errors"
	"testing"

	"stoa/agentsvc"
)

// RequireNoErrors ends the test at the first of errs that is not nil.
func RequireNoErrors(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// CheckError fails the test unless err wraps want; want = nil: unless err is nil.
func CheckError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// CheckInvalid fails the test unless err is an error with [agentsvc.CodeInvalid] about field.
func CheckInvalid(t testing.TB, err error, field string) {
	t.Helper()
	var invalid *agentsvc.Error
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Errorf("error %v, want one about %s", err, field)
	}
}
