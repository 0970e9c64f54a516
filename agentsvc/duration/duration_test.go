package duration

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "30d": 720 * time.Hour, "1d12h": 36 * time.Hour,
		"1.5d": 36 * time.Hour, "1d1ns": day + 1, "-1h": -time.Hour,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "30", "30 d", "30days", "-1d", "1d-1h", "1d2", "1e3d", "infd", "9999999999d", "106751d24h", "1h1d", "30D"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%s: got %v", text, got)
		}
	}
	var d Duration
	if err := d.UnmarshalText([]byte("2d")); err != nil || d != Duration(2*day) {
		t.Errorf("UnmarshalText: %v, %v", d, err)
	}
}
