package mutation

import (
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseIfMatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		lines   []string
		want    []string
		invalid bool
	}{
		{name: "no header"},
		{name: "any state", lines: []string{"*"}},
		{name: "one tag", lines: []string{`"7"`}, want: []string{"7"}},
		{name: "two tags", lines: []string{`"7", "r3-yaml"`}, want: []string{"7", "r3"}},
		{name: "two headers", lines: []string{`"7"`, `"8"`}, want: []string{"7", "8"}},
		{name: "weak tag", lines: []string{`W/"7"`}, want: []string{`W/"7"`}},
		{name: "empty", lines: []string{""}, invalid: true},
		{name: "white space", lines: []string{" "}, invalid: true},
		{name: "empty and a tag", lines: []string{"", `"7"`}, invalid: true},
		{name: "no quotes", lines: []string{"7"}, invalid: true},
		{name: "any state and a tag", lines: []string{`*, "7"`}, invalid: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("PATCH", "/admin/apps/globex", nil)
			for _, line := range tt.lines {
				r.Header.Add("If-Match", line)
			}
			tags, err := ParseIfMatch(r)
			if invalid := err != nil; invalid != tt.invalid {
				t.Fatalf("error %v, want one: %t", err, tt.invalid)
			}
			const text = `If-Match: must be an ETag as it was answered, in quotes, such as "3"`
			if err != nil && err.Error() != text {
				t.Errorf("%v, want %s", err, text)
			}
			if diff := cmp.Diff(tt.want, tags); diff != "" {
				t.Error(diff)
			}
		})
	}
}
