package webhook

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"stoa/agentsvc"
)

// TestLookupResult checks that only a delivery whose task was found is a repetition: not one whose look-up failed.
func TestLookupResult(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		err             error
		found, repeated bool
	}{
		{"found", nil, true, true},
		{"not found", fmt.Errorf("x: %w", agentsvc.ErrNotFound), false, false},
		{"database unreachable", io.ErrUnexpectedEOF, true, false},
	} {
		found, repeated, err := lookupResult(tt.err)
		if found != tt.found || repeated != tt.repeated || tt.found && !errors.Is(err, tt.err) {
			t.Errorf("%s: decided %v, repeated %v, %v", tt.name, found, repeated, err)
		}
	}
}
