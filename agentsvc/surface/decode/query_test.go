package decode

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestParseAfter(t *testing.T) {
	t.Parallel()
	n := func(n int64) *int64 { return &n }
	tests := []struct {
		name, header string
		given        *int64
		want         *int64
		err          string
	}{
		{"none", "", nil, nil, ""},
		{"header", "7", nil, n(7), ""},
		{"given", "", n(3), n(3), ""},
		{"header beats given", "7", n(3), n(7), ""},
		{"the beginning", "0", nil, n(0), ""},
		{"negative", "-1", nil, nil, "Last-Event-ID: must be the id of an event"},
		{"word", "x", nil, nil, "Last-Event-ID: must be the id of an event"},
		{"given negative", "", n(-1), nil, "after: must be the id of an event"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(""))
			if tt.header != "" {
				r.Header.Set("Last-Event-ID", tt.header)
			}
			got, err := ParseAfter(r, tt.given)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tt.err || (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
				t.Errorf("After = %v, %q, want %v, %q", got, text, tt.want, tt.err)
			}
		})
	}
}
