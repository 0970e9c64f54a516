package agentsvc_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
)

func TestCiteSources(t *testing.T) {
	t.Parallel()
	given := []agentsvc.Source{{N: 3}, {N: 1}, {N: 2}}
	for _, c := range []struct {
		answer string
		want   []int
	}{
		{"Two years [1].", []int{1}},
		{"Two years [3][1].", []int{1, 3}},
		{"Two years [1, 2].", []int{1, 2}},
		{"Two years.", []int{1, 2, 3}},
		{"", []int{1, 2, 3}},
		{"Two years [7].", []int{1, 2, 3}},
		{"Two years [7], see [2].", []int{2}},
		{"Use `list[1]`, as [2] says.", []int{2}},
		{"```\na[1]\n```\nas [3] says", []int{3}},
		{"```\na[1]", []int{1, 2, 3}},
		{"[99999999999999999999] and [x] and [-1] and []", []int{1, 2, 3}},
	} {
		got := []int{}
		for _, s := range agentsvc.CiteSources(c.answer, given) {
			got = append(got, s.N)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: %s", c.answer, diff)
		}
	}
}
