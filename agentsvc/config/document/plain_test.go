package document

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	got, err := Decode([]byte("name: ${NAME}\nx: &x [1, 2.5, true, ~, 2024-01-01]\ny: *x\nz: {<<: {a: 1}, b: yes}\n"))
	if err != nil {
		t.Fatal(err)
	}
	list := []any{1, 2.5, true, nil, "2024-01-01"}
	want := map[string]any{"name": "${NAME}", "x": list, "y": list, "z": map[string]any{"a": 1, "b": "yes"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, src := range []string{"[]", "text", "a: .nan", "a: 1\na: 2", "a: [", "a: &a [*a]"} {
		if _, err := Decode([]byte(src)); err == nil {
			t.Errorf("%q is accepted", src)
		}
	}
}
