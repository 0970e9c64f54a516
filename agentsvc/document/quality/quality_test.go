package quality

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestScore(t *testing.T) {
	t.Parallel()
	second := 1 / math.Log2(3)
	for _, tt := range []struct {
		name            string
		found, relevant []string
		want            Scores
	}{
		{"first", []string{"a", "b"}, []string{"a"}, Scores{1, 1, 1, 1, 1}},
		{"second", []string{"b", "a"}, []string{"a"}, Scores{0, 1, 1, 0.5, second}},
		{"repetitions count once", []string{"b", "b", "b", "a"}, []string{"a", "a"}, Scores{0, 1, 1, 0.5, second}},
		{"sixth", []string{"1", "2", "3", "4", "5", "a"}, []string{"a"}, Scores{0, 0, 1, 1.0 / 6, 1 / math.Log2(7)}},
		{"eleventh", []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "a"}, []string{"a"}, Scores{0, 0, 0, 1.0 / 11, 0}},
		{"one of two", []string{"a"}, []string{"a", "b"}, Scores{1, 0.5, 0.5, 1, 1 / (1 + second)}},
		{"both of two", []string{"b", "a"}, []string{"a", "b"}, Scores{1, 1, 1, 1, 1}},
		{"nothing found", nil, []string{"a"}, Scores{}},
		{"nothing relevant", []string{"a"}, nil, Scores{}},
	} {
		if diff := cmp.Diff(tt.want, Score(tt.found, tt.relevant), cmpopts.EquateApprox(0, 1e-12)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestMean(t *testing.T) {
	t.Parallel()
	got := Mean([]Scores{{1, 1, 1, 1, 1}, {0, 1, 1, 0.5, 0.5}})
	if diff := cmp.Diff(Scores{0.5, 1, 1, 0.75, 0.75}, got); diff != "" {
		t.Error(diff)
	}
	if got := Mean(nil); got != (Scores{}) {
		t.Errorf("the mean of nothing is %+v", got)
	}
}
