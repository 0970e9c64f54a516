package deploytest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseQuery checks that metrics and labels are found and that functions, durations and texts are not taken for them.
func TestParseQuery(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		expr      string
		selectors []Selector
		grouped   []string
	}{
		{`up`, []Selector{{Metric: "up"}}, nil},
		{`sum by (app, le) (rate(a_total{x="y z", w=~"1|2"}[5m])) / b:c:sum > 14.4 * 0.001 and on () d{n!=""} offset 5m`,
			[]Selector{{"a_total", []Matcher{{"x", "=", "y z"}, {"w", "=~", "1|2"}}}, {Metric: "b:c:sum"}, {"d", []Matcher{{"n", "!=", ""}}}}, []string{"app", "le"}},
		{`max without (code) (a) - time() < 14 * 86400 or vector(0)`, []Selector{{Metric: "a"}}, []string{"code"}},
		{`histogram_quantile(0.95, sum by (le) (rate(a_bucket[$__rate_interval])))`, []Selector{{Metric: "a_bucket"}}, []string{"le"}},
		{`a > 2 * 1024^3`, []Selector{{Metric: "a"}}, nil},
	} {
		selectors, grouped := ParseQuery(tt.expr)
		if d := cmp.Diff(tt.selectors, selectors); d != "" {
			t.Errorf("%s: selectors (-want +got):\n%s", tt.expr, d)
		}
		if d := cmp.Diff(tt.grouped, grouped); d != "" {
			t.Errorf("%s: labels (-want +got):\n%s", tt.expr, d)
		}
	}
}
