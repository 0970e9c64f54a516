// Package deploytest reads the alerts, dashboards and runbooks of deploy and docs/runbooks, so that tests can compare their
// queries with the metrics of a server.
package deploytest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Rule is a recording rule or an alert of deploy/prometheus/alerts.yaml.
type Rule struct {
	Record      string            `yaml:"record"`
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// ReadRules returns the rules of all groups, in their order. root is the folder of the repository.
func ReadRules(root string) ([]Rule, error) {
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []Rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := ReadYAML(filepath.Join(root, "deploy/prometheus/alerts.yaml"), &file); err != nil {
		return nil, err
	}
	var all []Rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all, nil
}

// ReadYAML decodes a file into out and refuses unknown keys.
func ReadYAML(file string, out any) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	if err := decoder.Decode(out); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// Dashboard is the part of a dashboard of Grafana that the tests look at.
type Dashboard struct {
	UID, Title string
	Templating struct{ List []Variable }
	Panels     []Panel
}

// Variable is a choice at the top of a dashboard.
type Variable struct{ Name, Type, Query string }

// Panel is a part of a dashboard with its queries.
type Panel struct {
	ID          int
	Title, Type string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ Type, UID string }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// ReadDashboards returns the dashboards of deploy/grafana by the names of their files.
func ReadDashboards(root string) (map[string]Dashboard, error) {
	files, err := filepath.Glob(filepath.Join(root, "deploy/grafana/*.json"))
	if err != nil {
		return nil, err
	}
	all := map[string]Dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var d Dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[filepath.Base(file)] = d
	}
	return all, nil
}

// Query is a PromQL expression, where it stands, and the labels that are used of its result.
type Query struct {
	Where, Expr string
	Shown       []string
}

var (
	// shownPattern matches a label in a legend or an annotation.
	shownPattern = regexp.MustCompile(`\{\{\s*(?:with\s+)?(?:\$labels\.)?([a-z]\w*)\s*\}\}`)
	// labelPattern matches a label in a template that has further words.
	labelPattern = regexp.MustCompile(`\$labels\.(\w+)`)
	// labelValuesPattern matches the query of a dashboard's variable.
	labelValuesPattern = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	promqlPattern      = regexp.MustCompile("(?s)```promql\n(.*?)```")
)

// ListQueries returns the queries of all rules, dashboards and runbooks.
func ListQueries(root string) ([]Query, error) {
	rules, err := ReadRules(root)
	if err != nil {
		return nil, err
	}
	var all []Query
	for _, r := range rules {
		q := Query{Where: "alerts.yaml: " + r.Alert + r.Record, Expr: r.Expr}
		for _, m := range labelPattern.FindAllStringSubmatch(r.Annotations["description"], -1) {
			q.Shown = append(q.Shown, m[1])
		}
		all = append(all, q)
	}
	dashboards, err := ReadDashboards(root)
	if err != nil {
		return nil, err
	}
	for file, d := range dashboards {
		for _, v := range d.Templating.List {
			if m := labelValuesPattern.FindStringSubmatch(v.Query); m != nil {
				all = append(all, Query{Where: file + ": variable " + v.Name, Expr: m[1], Shown: m[2:]})
			}
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				q := Query{Where: file + ": " + p.Title, Expr: target.Expr}
				for _, m := range shownPattern.FindAllStringSubmatch(target.LegendFormat, -1) {
					q.Shown = append(q.Shown, m[1])
				}
				all = append(all, q)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/runbooks/*.md"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		for _, block := range promqlPattern.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(block[1]) {
				// The last line of a block in a list is the blanks before its end.
				if line = strings.TrimSpace(line); line != "" {
					all = append(all, Query{Where: filepath.Base(page), Expr: line})
				}
			}
		}
	}
	return all, nil
}
