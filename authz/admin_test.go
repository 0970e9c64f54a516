package authz_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/authz"
	"stoa/ratelimit"
)

const (
	oldSecret = "0123456789abcdef0123456789abcdef"
	newSecret = "fedcba9876543210fedcba9876543210-and-more"
)

func TestNewAdminSecretRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, value, want string }{
		{"empty", "", "0 bytes"},
		{"short", strings.Repeat("s", 31), "31 bytes"},
		{"second short", oldSecret + ",short-one", "value 2"},
		{"trailing comma", oldSecret + ",", "value 2"},
		{"blank", strings.Repeat(" ", 40), "0 bytes"},
		{"like a token", "0123456789abcdef.0123456789abcdef.0", "two dots"},
		{"three", strings.Join([]string{oldSecret, newSecret, oldSecret}, ","), "more than two"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := authz.NewAdminSecret(tt.value, ratelimit.NewThrottle(ratelimit.ThrottleOptions{}))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want an error with %q", err, tt.want)
			}
			for secret := range strings.SplitSeq(tt.value, ",") {
				if secret = strings.TrimSpace(secret); secret != "" && strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows a secret: %v", err)
				}
			}
		})
	}
}

func TestAdminSecret(t *testing.T) {
	t.Parallel()
	secret, err := authz.NewAdminSecret(oldSecret+", "+newSecret, ratelimit.NewThrottle(ratelimit.ThrottleOptions{Failures: 1000}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, credential string
		right            bool
	}{
		{"old", oldSecret, true},
		{"new", newSecret, true},
		{"both", oldSecret + "," + newSecret, false},
		{"prefix", oldSecret[:31], false},
		{"longer", oldSecret + "0", false},
		{"other case", strings.ToUpper(oldSecret), false},
		{"with space", " " + oldSecret, false},
		{"empty", "", false},
		{"wrong", strings.Repeat("x", 32), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := secret.VerifySecret(t.Context(), "192.0.2.1", tt.credential)
			if tt.right && (err != nil || !p.Platform || p.App != "") {
				t.Errorf("got %+v and %v, want the platform's operator", p, err)
			}
			if !tt.right && (!errors.Is(err, agentsvc.CodeUnauthenticated) || p.Platform) {
				t.Errorf("got %+v and %v, want ErrUnauthenticated", p, err)
			}
		})
	}
	for _, shown := range []string{fmt.Sprintf("%v", secret), fmt.Sprintf("%+v", secret), fmt.Sprintf("%#v", secret)} {
		if strings.Contains(shown, oldSecret) || strings.Contains(shown, newSecret) {
			t.Errorf("printing shows the secret: %s", shown)
		}
	}
}

func TestAdminSecretThrottlesAnAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		secret, err := authz.NewAdminSecret(oldSecret, ratelimit.NewThrottle(ratelimit.ThrottleOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		const guesser, operator = "192.0.2.1:4000", "192.0.2.2:4000"
		for i := range 20 {
			_, err := secret.VerifySecret(t.Context(), guesser, fmt.Sprintf("guess number %020d", i))
			want := agentsvc.CodeUnauthenticated
			if i >= 10 {
				want = agentsvc.CodeExhausted
			}
			if !errors.Is(err, want) {
				t.Fatalf("guess %d: got %v, want %v", i+1, err, want)
			}
		}
		if _, err := secret.VerifySecret(t.Context(), guesser, oldSecret); err != nil {
			t.Errorf("right secret from the guesser's address: %v", err)
		}
		if _, err := secret.VerifySecret(t.Context(), operator, oldSecret); err != nil {
			t.Errorf("right secret from elsewhere: %v", err)
		}
		for range 50 { // a correct or missing secret is not counted as a failure
			if _, err := secret.VerifySecret(t.Context(), operator, oldSecret); err != nil {
				t.Fatal(err)
			}
			if _, err := secret.VerifySecret(t.Context(), operator, ""); !errors.Is(err, agentsvc.CodeUnauthenticated) {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute + time.Second)
		if _, err := secret.VerifySecret(t.Context(), guesser, oldSecret); err != nil {
			t.Errorf("after a minute: %v", err)
		}
	})
}
