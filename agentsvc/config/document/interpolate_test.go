package document

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestInterpolate(t *testing.T) {
	t.Parallel()
	values := map[string]string{"A": "one", "B": "${A}", "EMPTY": "", "DOLLAR": "$", "BRACE": "a}b"}
	lookup := func(name string) (string, bool) { value, ok := values[name]; return value, ok }
	for _, test := range []struct {
		text, want string
		set        bool
		faults     []badReference
	}{
		{text: "plain $ and $$ and {x}", want: "plain $ and $$ and {x}"},
		{text: "${A}", want: "one"},
		{text: "<${A}-${A}>", want: "<one-one>"},
		{text: "${B}", want: "${A}"},
		{text: "${DOLLAR}{A}", want: "${A}"},
		{text: "${BRACE}", want: "a}b"},
		{text: "${C:two}", want: "two"},
		{text: "${C:}", want: ""},
		{text: "${C:http://x:1/y}", want: "http://x:1/y"},
		{text: "${C:-1}", faults: []badReference{{suggestion: "${C:1}"}}},
		{text: "${A:-a:-b} ${C:-} ${D}", want: "  ", faults: []badReference{{suggestion: "${A:a:-b}"}, {suggestion: "${C:}"}, {name: "D"}}},
		{text: "${EMPTY:two}", want: "", set: true},
		{text: "${A:two}", want: "one"},
		{text: "$${A}", want: "${A}"},
		{text: "$$${A}", want: "$${A}"},
		{text: "$${", want: "${"},
		{text: "${C} ${D}", want: " ", faults: []badReference{{name: "C"}, {name: "D"}}},
		{text: "<${EMPTY}>", want: "<>", set: true},
		{text: "${A", faults: []badReference{{}}},
		{text: "${}", faults: []badReference{{}}},
		{text: "${1A}", faults: []badReference{{}}},
		{text: "${A B}", faults: []badReference{{}}},
		{text: "${a.b:c}", faults: []badReference{{}}},
	} {
		got, set, faults := interpolateText(test.text, lookup, 1000)
		if got != test.want || test.set && !set {
			t.Errorf("%q: got %q, set %v, want %q", test.text, got, set, test.want)
		}
		if diff := cmp.Diff(test.faults, faults, cmpopts.EquateEmpty(), cmp.AllowUnexported(badReference{})); diff != "" {
			t.Errorf("%q: -want +got:\n%s", test.text, diff)
		}
	}
}
