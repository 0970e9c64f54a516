package deploytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.."

// receivers are the receivers of Alertmanager by the severity of an alert.
var receivers = map[string]string{"critical": "page", "warning": "ticket", "info": "log"}

// readAlerts returns the alerts.
func readAlerts(t *testing.T) (alerts []Rule) {
	t.Helper()
	rules, err := ReadRules(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if r.Alert != "" {
			alerts = append(alerts, r)
		}
	}
	if len(alerts) < 30 {
		t.Fatalf("only %d alerts are found", len(alerts))
	}
	return alerts
}

// TestAlerts checks that each alert has a severity, texts, a runbook and a row in the table of docs/operations.md, and that
// there is no runbook and no row of another alert.
func TestAlerts(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| \[(Stoa\w+)\]\(runbooks/(\w+)\.md\) \|`).FindAllStringSubmatch(string(page), -1) {
		if m[1] != m[2] {
			t.Errorf("docs/operations.md: the row of %s links to %s", m[1], m[2])
		}
		rows[m[1]] = true
	}
	seen, names := map[string]bool{}, map[string]bool{}
	for _, a := range readAlerts(t) {
		names[a.Alert] = true
		severity := a.Labels["severity"]
		if key := a.Alert + " " + severity; seen[key] || receivers[severity] == "" {
			t.Errorf("%s: the severity %q is unknown or is there twice", a.Alert, severity)
		} else {
			seen[key] = true
		}
		for _, name := range []string{"summary", "description"} {
			if a.Annotations[name] == "" {
				t.Errorf("%s has no %s", a.Alert, name)
			}
		}
		if want := "docs/runbooks/" + a.Alert + ".md"; a.Annotations["runbook_url"] != want {
			t.Errorf("%s: the runbook is %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		if !rows[a.Alert] {
			t.Errorf("docs/operations.md has no row for %s", a.Alert)
		}
		checkRunbook(t, a.Alert)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/runbooks/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); !names[name] {
			t.Errorf("%s: there is no such alert", page)
		}
	}
	for name := range rows {
		if !names[name] {
			t.Errorf("docs/operations.md has a row for %s, which is no alert", name)
		}
	}
}

// checkRunbook checks that the runbook of an alert has its four parts, each with text, and that its links lead to files.
func checkRunbook(t *testing.T, alert string) {
	t.Helper()
	file := filepath.Join(root, "docs/runbooks", alert+".md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	if !strings.HasPrefix(string(text), "# "+alert+"\n") {
		t.Errorf("%s: the heading is not the name of the alert", file)
	}
	var parts []string
	for _, m := range regexp.MustCompile(`(?m)^## (.*)\n\n\S`).FindAllStringSubmatch(string(text), -1) {
		parts = append(parts, m[1])
	}
	if want := []string{"What it means", "How to see it", "What to do", "When to stop"}; !slices.Equal(parts, want) {
		t.Errorf("%s: the parts are %q, want %q, each with text", file, parts, want)
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(root, "docs/runbooks", m[1])); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// alertTestFiles are the files with tests of the alerts.
var alertTestFiles = []string{"alerts_test.yaml", "alerts_days_test.yaml"}

// alertTest is a test of one of alertTestFiles.
type alertTest struct {
	Checks []struct {
		Alert  string `yaml:"alertname"`
		Alerts []struct {
			Labels map[string]string `yaml:"exp_labels"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

// TestAlertTests checks that each alert is tested at a time at which it fires and at one at which it does not.
func TestAlertTests(t *testing.T) {
	t.Parallel()
	var tests []alertTest
	for _, name := range alertTestFiles {
		text, err := os.ReadFile(filepath.Join(root, "deploy/prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Tests []alertTest `yaml:"tests"`
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		tests = append(tests, file.Tests...)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests {
		for _, check := range test.Checks {
			severities := map[string]bool{}
			for _, a := range check.Alerts {
				severities[a.Labels["severity"]] = true
			}
			for severity := range receivers {
				if severities[severity] {
					fires[check.Alert+" "+severity] = true
				} else {
					silent[check.Alert+" "+severity] = true
				}
			}
		}
	}
	for _, a := range readAlerts(t) {
		if key := a.Alert + " " + a.Labels["severity"]; !fires[key] || !silent[key] {
			t.Errorf("%s fires in a test: %t, is silent in one: %t", key, fires[key], silent[key])
		}
	}
}

// units are the units of Grafana that the dashboards use.
var units = []string{"none", "s", "d", "bytes", "percentunit", "reqps", "ops", "cps"}

// TestDashboards checks that each dashboard and panel has an id of its own, and that each panel has a query, a unit and a place.
func TestDashboards(t *testing.T) {
	t.Parallel()
	dashboards, err := ReadDashboards(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"fleet.json", "app.json", "queue.json", "models.json", "money.json", "database.json"} {
		if len(dashboards[file].Panels) == 0 {
			t.Errorf("%s is not there or has no panel", file)
		}
	}
	uids := map[string]bool{}
	for file, d := range dashboards {
		if uids[d.UID] || d.UID == "" || d.Title == "" {
			t.Errorf("%s: the uid %q is not its own, or it has no title", file, d.UID)
		}
		uids[d.UID] = true
		if !slices.ContainsFunc(d.Templating.List, func(v Variable) bool { return v.Name == "datasource" && v.Type == "datasource" }) {
			t.Errorf("%s has no variable datasource", file)
		}
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			where := file + ": " + p.Title
			if ids[p.ID] || p.Title == "" || p.Type == "" {
				t.Errorf("%s: the id %d is not its own, or it has no title or type", where, p.ID)
			}
			ids[p.ID] = true
			if !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
				t.Errorf("%s: the unit %q is not one of %v", where, p.FieldConfig.Defaults.Unit, units)
			}
			if p.Datasource.UID != "${datasource}" {
				t.Errorf("%s does not use the variable datasource", where)
			}
			if len(p.Targets) == 0 {
				t.Errorf("%s has no query", where)
			}
			for _, target := range p.Targets {
				if target.Expr == "" || target.RefID == "" {
					t.Errorf("%s has a query without an expression or an id", where)
				}
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s lies on %q or outside", where, other)
					}
					cells[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// requireProgram skips a test whose program is not on this machine, except where everything is required.
func requireProgram(t *testing.T, program, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("STOA_TEST_REQUIRE") != "" {
		t.Fatalf("%s is not on this machine", program)
	}
	fmt.Fprintf(os.Stdout, "    ATTENTION: %s: NOT TESTED: %s (Debian package %s) is not on this machine\n", t.Name(), program, debianPackage)
	t.SkipNow()
}

// run runs a command and fails the test with what it wrote.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if written, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, written)
	}
}

// TestPromtool checks the rules and runs their tests with promtool, and checks the queries of dashboards and runbooks.
func TestPromtool(t *testing.T) {
	t.Parallel()
	requireProgram(t, "promtool", "prometheus")
	run(t, "promtool", "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(root, "deploy/prometheus/alerts.yaml"))
	for _, name := range alertTestFiles {
		run(t, "promtool", "test", "rules", filepath.Join(root, "deploy/prometheus", name))
	}
	queries, err := ListQueries(root)
	if err != nil {
		t.Fatal(err)
	}
	type rule struct {
		Record string            `yaml:"record"`
		Expr   string            `yaml:"expr"`
		Labels map[string]string `yaml:"labels"`
	}
	var rules []rule
	for _, q := range queries {
		rules = append(rules, rule{"query", strings.ReplaceAll(q.Expr, "$__rate_interval", "5m"), map[string]string{"where": fmt.Sprint(len(rules)) + " " + q.Where}})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "queries", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "promtool", "check", "rules", "--lint=none", file)
}

// TestAmtool checks the configuration of Alertmanager, to which receiver each alert goes, and that its rules of inhibition
// name alerts that exist.
func TestAmtool(t *testing.T) {
	t.Parallel()
	file := filepath.Join(root, "deploy/alertmanager/alertmanager.yaml")
	var config struct {
		Inhibit []map[string]any `yaml:"inhibit_rules"`
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	alerts := readAlerts(t)
	for _, m := range regexp.MustCompile(`alertname=~?"([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		prefix, list, grouped := strings.Cut(strings.TrimSuffix(m[1], ")"), "(")
		if !grouped {
			prefix, list = "", m[1]
		}
		for name := range strings.SplitSeq(list, "|") {
			if !slices.ContainsFunc(alerts, func(a Rule) bool { return a.Alert == prefix+name }) {
				t.Errorf("alertmanager.yaml names %s, which is no alert", prefix+name)
			}
		}
	}
	if len(config.Inhibit) == 0 {
		t.Error("no alert inhibits another one")
	}
	requireProgram(t, "amtool", "prometheus-alertmanager")
	run(t, "amtool", "check-config", file)
	for _, a := range alerts {
		severity := a.Labels["severity"]
		run(t, "amtool", "config", "routes", "test", "--config.file", file, "--verify.receivers", receivers[severity], "alertname="+a.Alert, "severity="+severity)
	}
}
