package document

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestHideValues checks that no problem contains the value of a secret, and that other errors are unchanged.
func TestHideValues(t *testing.T) {
	t.Parallel()
	found := &Error{Problems: []Problem{{Path: "agents.hunter22", Message: `"hunter22" is no time zone, and a is a word`, Suggestion: "hunter22"}}}
	got := HideValues(fmt.Errorf("build: %w", found), []string{"", "a", "hunter22"})
	if strings.Contains(got.Error(), "hunter22") || !strings.Contains(got.Error(), "and a is a word") {
		t.Errorf("HideValues = %v", got)
	}
	if !strings.Contains(found.Error(), "hunter22") {
		t.Error("the error that was given is changed")
	}
	other := errors.New("hunter22")
	if got := HideValues(other, []string{"hunter22"}); !errors.Is(got, other) {
		t.Errorf("HideValues = %v", got)
	}
}
