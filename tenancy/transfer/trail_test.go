package transfer

import (
	"testing"

	"stoa/tenancy/audit"
)

var noFilter audit.Filter

// newTrailVerifier returns a verifier that reports each flaw.
func newTrailVerifier(t *testing.T) *audit.Verifier {
	t.Helper()
	return &audit.Verifier{OnResult: func(r audit.Result) {
		for _, f := range r.Flaws {
			t.Errorf("audit trail of %q: entry %d: %s", r.App, f.Seq, f.Text)
		}
	}}
}
