package tenancy

import (
	"testing"
	"time"
)

func TestIsTokenRevoked(t *testing.T) {
	t.Parallel()
	at := func(sec int64) time.Time { return time.Unix(sec, 0) }
	app := App{CreatedAt: time.Unix(100, 700e6), revocations: map[string]int64{"ana": 200, "bob": 50}}
	all := App{CreatedAt: time.Unix(100, 0), revocations: map[string]int64{"": 300, "ana": 200}}
	tests := []struct {
		name string
		app  App
		sub  string
		iat  time.Time
		want bool
	}{
		{"before the app", app, "eve", at(99), true},
		{"the app's second", app, "eve", at(100), false},
		{"before the subject's mark", app, "ana", at(199), true},
		{"the mark's second", app, "ana", at(200), true},
		{"within the mark's second", app, "ana", time.Unix(200, 999e6), true},
		{"after the mark", app, "ana", at(201), false},
		{"another subject", app, "eve", at(200), false},
		{"a mark before the app", app, "bob", at(100), false},
		{"no time", app, "ana", time.Time{}, true},
		{"no time, nothing revoked", app, "eve", time.Time{}, false},
		{"the app's mark", all, "eve", at(300), true},
		{"the app's mark beside the subject's", all, "ana", at(300), true},
		{"after the app's mark", all, "ana", at(301), false},
		{"the default app has no age", App{}, "eve", at(1), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.app.IsTokenRevoked(tt.sub, tt.iat, 0); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			iat := tt.app.TokenIssueTime(tt.sub, at(200))
			if tt.app.IsTokenRevoked(tt.sub, iat, 0) {
				t.Errorf("a new token of %v is refused", iat)
			}
		})
	}
}

// TestIsTokenRevokedWithClockSkew checks tokens whose issuer's clock may be a minute ahead.
func TestIsTokenRevokedWithClockSkew(t *testing.T) {
	t.Parallel()
	app := App{CreatedAt: time.Unix(100, 0), revocations: map[string]int64{"ana": 200}}
	for _, tt := range []struct {
		sub  string
		iat  int64
		want bool
	}{{"ana", 200, true}, {"ana", 260, true}, {"ana", 261, false}, {"eve", 100, false}, {"eve", 99, true}} {
		if got := app.IsTokenRevoked(tt.sub, time.Unix(tt.iat, 0), time.Minute); got != tt.want {
			t.Errorf("a token of %s from %d: %v, want %v", tt.sub, tt.iat, got, tt.want)
		}
	}
}

func TestIsValidAppName(t *testing.T) {
	t.Parallel()
	long := "a123456789012345678901234567890123456789012345678901234567890bc" // 63 characters
	for name, want := range map[string]bool{
		"a": true, "acme": true, "a-b": true, "0": true, "a--b": true, long: true,
		"": false, "A": false, "../x": false, "a::b": false, long + "d": false, "😀": false, "é": false, "-a": false, "a-": false,
		"a.b": false, "a_b": false, "a b": false, "a\n": false, "a/b": false, "a%2f": false, "a\x00": false,
	} {
		if got := IsValidAppName(name); got != want {
			t.Errorf("ValidName(%q) = %v, want %v", name, got, want)
		}
	}
}
