package main

import (
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stoa/deploy/deploytest"
	"stoa/tenancy/db/dbtest"
)

// scrapedSeries are the values of the labels of a scrape, by metric and label.
type scrapedSeries map[string]map[string]map[string]bool

var (
	seriesPattern = regexp.MustCompile(`(?m)^([a-z_:]\w*)(?:\{(.*)\})? \S+$`)
	labelPattern  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// addScrape adds what a server shows to Prometheus.
func (s scrapedSeries) addScrape(ts *testServer) {
	w := httptest.NewRecorder()
	ts.Metrics().Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, m := range seriesPattern.FindAllStringSubmatch(w.Body.String(), -1) {
		s.addSeries(m[1])
		for _, l := range labelPattern.FindAllStringSubmatch(m[2], -1) {
			s.addValue(m[1], l[1], l[2])
		}
	}
}

// addSeries adds a metric with the labels that Prometheus adds.
func (s scrapedSeries) addSeries(metric string) {
	if s[metric] == nil {
		s[metric] = map[string]map[string]bool{"job": {"stoa": true}, "instance": {}}
	}
}

func (s scrapedSeries) addValue(metric, label, value string) {
	if s[metric][label] == nil {
		s[metric][label] = map[string]bool{}
	}
	s[metric][label][value] = true
}

// addRecorded adds the results of the recording rules, with the labels of what they are computed from.
func (s scrapedSeries) addRecorded(t *testing.T) {
	t.Helper()
	rules, err := deploytest.ReadRules("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if r.Record == "" {
			continue
		}
		s.addSeries(r.Record)
		selectors, grouped := deploytest.ParseQuery(r.Expr)
		for _, selector := range selectors {
			for label, values := range s[selector.Metric] {
				if slices.Contains(grouped, label) && strings.Contains(r.Expr, "without") {
					continue
				}
				for value := range values {
					s.addValue(r.Record, label, value)
				}
			}
		}
	}
}

// findFaults returns what a query names and the scrape does not have: metrics, labels, and values of labels.
func (s scrapedSeries) findFaults(q deploytest.Query) (faults []string) {
	selectors, grouped := deploytest.ParseQuery(q.Expr)
	if len(selectors) == 0 {
		return []string{"it names no metric"}
	}
	labels := map[string]bool{}
	for _, selector := range selectors {
		series := s[selector.Metric]
		if series == nil {
			faults = append(faults, "there is no metric "+selector.Metric)
			continue
		}
		for label := range series {
			labels[label] = true
		}
		for _, m := range selector.Matchers {
			if series[m.Label] == nil {
				faults = append(faults, selector.Metric+" has no label "+m.Label)
				continue
			}
			values, _ := m.Values()
			for _, value := range values {
				if !series[m.Label][value] {
					faults = append(faults, selector.Metric+" has no series with "+m.Label+"="+value)
				}
			}
		}
	}
	for _, label := range slices.Concat(grouped, q.Shown) {
		if !labels[label] {
			faults = append(faults, "no metric in it has the label "+label)
		}
	}
	return faults
}

// TestDeployQueries checks that every metric, label and value that an alert, a dashboard or a runbook names is in a scrape
// of a server, and that the routes which the alerts name exist.
func TestDeployQueries(t *testing.T) {
	shown := scrapedSeries{}
	shown.addScrape(openExercisedServer(t))
	secure := openServerTLS(t)
	// Both are read in the background.
	dbtest.WaitUntil(t, "the certificate's expiry and the disk's free space are shown", func() bool {
		shown.addScrape(secure)
		return shown["stoa_tls_certificate_not_after_seconds"] != nil && shown["stoa_db_disk_free_bytes"] != nil
	})
	// Prometheus itself adds up.
	shown.addSeries("up")
	shown.addRecorded(t)
	queries, err := deploytest.ListQueries("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(queries) < 200 {
		t.Errorf("only %d queries are found", len(queries))
	}
	for _, q := range queries {
		for _, fault := range shown.findFaults(q) {
			t.Errorf("%s: %s: %s", q.Where, q.Expr, fault)
		}
	}
	routes := map[string]bool{}
	for key := range routeAccess {
		_, route, _ := strings.Cut(key, " ")
		routes[route] = true
	}
	checked := 0
	for _, q := range queries {
		selectors, _ := deploytest.ParseQuery(q.Expr)
		for _, selector := range selectors {
			for _, m := range selector.Matchers {
				if m.Label != "route" {
					continue
				}
				for pattern := range strings.SplitSeq(m.Value, "|") {
					checked++
					whole := regexp.MustCompile("^(?:" + pattern + ")$")
					if !slices.ContainsFunc(slices.Collect(maps.Keys(routes)), whole.MatchString) {
						t.Errorf("%s: no route is like %s", q.Where, pattern)
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no query names a route")
	}
}

// TestDeployQueriesDetects checks that each kind of fault in a query is found.
func TestDeployQueriesDetects(t *testing.T) {
	t.Parallel()
	shown := scrapedSeries{}
	shown.addSeries("a_total")
	shown.addValue("a_total", "code", "INTERNAL")
	for _, tt := range []struct {
		query deploytest.Query
		want  string
	}{
		{deploytest.Query{Expr: `sum by (code) (rate(a_total{code="INTERNAL"}[5m]))`, Shown: []string{"instance"}}, ""},
		{deploytest.Query{Expr: `b_total`}, "there is no metric b_total"},
		{deploytest.Query{Expr: `a_total{state="x"}`}, "a_total has no label state"},
		{deploytest.Query{Expr: `a_total{code=~"INTERNAL|OTHER"}`}, "a_total has no series with code=OTHER"},
		{deploytest.Query{Expr: `sum by (app) (a_total)`}, "no metric in it has the label app"},
		{deploytest.Query{Expr: `a_total`, Shown: []string{"app"}}, "no metric in it has the label app"},
		{deploytest.Query{Expr: `vector(0)`}, "it names no metric"},
	} {
		if got := strings.Join(shown.findFaults(tt.query), "; "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.query.Expr, got, tt.want)
		}
	}
}
