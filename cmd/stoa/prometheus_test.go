package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db/dbtest"
)

// TestPrometheus lets a real Prometheus with the rules of deploy scrape a server with its token and query the result, and
// checks the metric names with promtool.
func TestPrometheus(t *testing.T) {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			dbtest.SkipMissing(t, program+" (Debian package prometheus) is not on this machine")
		}
	}
	t.Setenv(server.MetricsTokenName, "token-of-the-metrics")
	h := openExercisedServer(t)
	req := h.newRequest(t, "GET", "/metrics", "token-of-the-metrics", nil)
	status, page := h.sendRequest(t, req)
	if status != http.StatusOK {
		t.Fatal(status, page)
	}
	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = strings.NewReader(page)
	if written, err := check.CombinedOutput(); err != nil || len(bytes.TrimSpace(written)) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, written)
	}
	prometheus := startPrometheus(t, strings.TrimPrefix(h.url, "http://"))
	for query, want := range map[string]string{
		`sum(service_requests_total{app="default",agent="assistant"})`:                                                        "1",
		`sum(stoa_runs_total{app="default",state="completed"})`:                                                               "1",
		`sum(stoa_request_errors_total{app="acme",code="RESOURCE_EXHAUSTED"})`:                                                "1",
		`sum(stoa_model_cost_total{app="acme",currency="EUR"})`:                                                               "1.5",
		`histogram_quantile(0.9, sum by (le) (gen_ai_client_operation_duration_seconds_bucket{error_type="500"})) > bool 0.5`: "1",
		`sum(stoa_queue_app_runs{state="pending",app="default"})`:                                                             "1",
		`process:stoa_request_errors:sum{code="RESOURCE_EXHAUSTED"}`:                                                          "1", // of deploy/prometheus
	} {
		got := ""
		dbtest.WaitUntil(t, "the answer to "+query, func() bool {
			got = queryPrometheus(t, prometheus, query)
			return got != ""
		})
		if got != want {
			t.Errorf("%s is %q, want %q", query, got, want)
		}
	}
	requireHealthyRules(t, prometheus)
}

// requireHealthyRules waits until Prometheus has evaluated every rule of deploy/prometheus, and fails for those that it
// could not evaluate.
func requireHealthyRules(t *testing.T, prometheus string) {
	t.Helper()
	dbtest.WaitUntil(t, "every rule is evaluated", func() bool {
		resp, err := http.Get(prometheus + "/api/v1/rules") //nolint:noctx // it is on this machine
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var out struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			return false
		}
		evaluated := 0
		for _, group := range out.Data.Groups {
			for _, rule := range group.Rules {
				switch rule.Health {
				case "err":
					t.Fatalf("%s: %s", rule.Name, rule.LastError)
				case "ok":
					evaluated++
				default:
					return false
				}
			}
		}
		return evaluated > 50
	})
}

// startPrometheus starts a Prometheus that scrapes target and returns its address.
func startPrometheus(t *testing.T, target string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	rules, err := filepath.Abs("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := "global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}\nrule_files: [" + rules + "]\nscrape_configs:\n  - job_name: stoa\n    authorization: {credentials: token-of-the-metrics}\n" +
		"    static_configs: [{targets: [\"" + target + "\"]}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr, "--log.level", "error")
	var written syncBuffer
	cmd.Stdout, cmd.Stderr = &written, &written
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(written.String())
		}
	})
	return "http://" + addr
}

// queryPrometheus returns the single value of a query, "" if there is none yet.
func queryPrometheus(t *testing.T, prometheus, query string) string {
	t.Helper()
	resp, err := http.Get(prometheus + "/api/v1/query?query=" + url.QueryEscape(query)) //nolint:noctx // it is on this machine
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var out struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || len(out.Data.Result) != 1 {
		return ""
	}
	return fmt.Sprint(out.Data.Result[0].Value[1])
}

// TestRedisMetrics checks that a server counts what it asks of Redis, for signals and for limits.
func TestRedisMetrics(t *testing.T) {
	t.Parallel()
	port, host, database, redis := 0, "127.0.0.1", dbtest.NewPostgresURL(t), dbtest.RequireRedisURL(t)
	h, err := openFlaggedServer(t, server.Flags{Database: &database, Port: &port, Host: &host, Redis: &redis}, newTestLog(t), exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	ts := startTestServer(t, h)
	ts.requireStatus(t, http.StatusUnauthorized, nil, "GET", "/admin/apps", "a-wrong-secret", nil) // it is counted in Redis
	ts.createApp(t, "acme", fmt.Sprintf(slowApp, "acme"))                                          // other processes are signalled
	dbtest.WaitUntil(t, "both uses of Redis are counted", func() bool {
		families, err := ts.Metrics().Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		uses := map[string]bool{}
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() == "stoa_redis_duration_seconds" && m.GetHistogram().GetSampleCount() > 0 {
					uses[m.Label[0].GetValue()] = true
				}
			}
		}
		return uses["signals"] && uses["limits"]
	})
}
