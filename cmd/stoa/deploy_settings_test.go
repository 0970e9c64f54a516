package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"stoa/cmd/stoa/server"
)

// deployedFiles are the files of deploy that set flags or variables of stoa.
var deployedFiles = []string{
	"helm/stoa/templates/*", "helm/stoa/values.yaml", "helm/stoa/values.schema.json", "compose/*.yaml", "compose/*.sh", "image/*", "systemd/*", "package/stoa.env",
}

// composeVariables are those that Compose itself replaces.
var composeVariables = []string{"STOA_HOSTNAME", "STOA_VERSION"}

// listServeNames returns the flags of stoa serve, and the variables that a server reads.
func listServeNames(t *testing.T) (flags, variables []string) {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Vars{"defaultServer": defaultServer}, kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range parser.Model.Children {
		if node.Name != "serve" {
			continue
		}
		for _, f := range node.Flags {
			flags = append(flags, f.Name)
			variables = append(variables, "STOA_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
		}
	}
	for _, name := range []string{server.AdminSecretName, server.MasterKeyName, server.MetricsTokenName, server.DatabaseName, server.MigrateDatabaseName} {
		variables = append(variables, name, name+"_FILE")
	}
	return flags, variables
}

// TestDeploySettings checks that the flags and variables in the files of deploy exist.
func TestDeploySettings(t *testing.T) {
	t.Parallel()
	flags, variables := listServeNames(t)
	if len(flags) < 30 {
		t.Fatalf("stoa serve has only the flags %v", flags)
	}
	argument := regexp.MustCompile(`(?m)^\s*- --([a-z-]+)(?:=|$)`)       // of the chart
	command := regexp.MustCompile(`(?m)(?:"serve", |/stoa serve )(.*)$`) // of Compose files, images and the unit
	inCommand := regexp.MustCompile(`--([a-z-]+)`)
	variable := regexp.MustCompile(`(?:^|[^A-Z_])(STOA_[A-Z_]*[A-Z])[^A-Z_]`)
	found := map[string]int{}
	for _, pattern := range deployedFiles {
		files, err := filepath.Glob(filepath.Join("../../deploy", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("there is no file %s (%v)", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			names := argument.FindAllSubmatch(text, -1)
			for _, line := range command.FindAllSubmatch(text, -1) {
				names = append(names, inCommand.FindAllSubmatch(line[1], -1)...)
			}
			for _, m := range names {
				if found["flags"]++; !slices.Contains(flags, string(m[1])) {
					t.Errorf("%s: stoa serve has no flag --%s", file, m[1])
				}
			}
			for _, m := range variable.FindAllSubmatch(text, -1) {
				if name := string(m[1]); !slices.Contains(variables, name) && !slices.Contains(composeVariables, name) {
					t.Errorf("%s: no server reads %s", file, name)
				}
				found["variables"]++
			}
		}
	}
	if found["flags"] < 20 || found["variables"] < 30 {
		t.Errorf("only %v are found", found)
	}
}

// TestDeployConfigurations checks that the configurations that deploy installs are valid and have no agent, so that nothing
// answers without a credential.
func TestDeployConfigurations(t *testing.T) {
	t.Parallel()
	configurations := map[string]string{}
	for _, file := range []string{"package/stoa.yaml", "compose/stoa.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../deploy", file))
		if err != nil {
			t.Fatal(err)
		}
		configurations[file] = string(text)
	}
	values, err := os.ReadFile("../../deploy/helm/stoa/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ Config string }
	if err := yaml.Unmarshal(values, &chart); err != nil {
		t.Fatal(err)
	}
	configurations["the chart"] = chart.Config
	for name, text := range configurations {
		var content struct{ Agents map[string]any }
		if err := yaml.Unmarshal([]byte(text), &content); err != nil || content.Agents == nil || len(content.Agents) > 0 {
			t.Errorf("%s: the agents are %v, want none (%v)", name, content.Agents, err)
		}
		file := filepath.Join(t.TempDir(), "stoa.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if code := runCommand(t.Context(), []string{"validate", file}, &console{in: strings.NewReader(""), out: &out, err: &out}); code != 0 {
			t.Errorf("%s is not valid: %s", name, out.String())
		}
	}
}
