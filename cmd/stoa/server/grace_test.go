package server

import (
	"testing"
	"time"
)

// TestGrace checks that invalid values of STOA_INVOICE_GRACE are refused.
func TestGrace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"72h": 72 * time.Hour, "off": 0, "1h": time.Hour, "10s": -1, "": -1, "soon": -1, "-72h": -1} {
		got, err := billingSettings{Grace: text}.parseGrace()
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
