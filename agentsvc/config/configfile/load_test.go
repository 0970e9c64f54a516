package configfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
)

// load parses the file at path as a server does.
func load(path string, environ func(string) (string, bool)) (*config.Config, error) {
	src, err := Read(path)
	if err != nil {
		return nil, err
	}
	if err := CheckText(path, src); err != nil {
		return nil, err
	}
	o, err := NewOptions(path, environ)
	if err != nil {
		return nil, err
	}
	return config.Parse(src, o)
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLoad is not parallel: it changes the current folder.
func TestLoad(t *testing.T) {
	here, configFolder, home := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(here)
	path := filepath.Join(configFolder, "stoa.yaml")
	writeFile(t, path, "name: ${A} ${B} ${C} ${D} ${E:e}\nllms: {default: {provider: openai}}\n")
	writeFile(t, filepath.Join(here, ".env"), "A=here\nB=here\n")
	writeFile(t, filepath.Join(configFolder, ".env"), "A=beside\nB=beside\nC=beside\nOPENAI_API_KEY=key\n")
	writeFile(t, filepath.Join(home, ".env"), "A=home\nB=home\nC=home\nD=home\n")
	environ := newMapLookup(map[string]string{"A": "process", "HOME": home})

	cfg, err := load(path, environ)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Name != "process here beside home e" {
		t.Errorf("name %q", cfg.Name)
	}
	if key := cfg.LLMs["default"].APIKey; key != "key" {
		t.Errorf("key %q", key)
	}
	if _, set := os.LookupEnv("OPENAI_API_KEY"); set {
		t.Error("the .env file leaked into the environment of the process")
	}
	lookup, err := NewLookup(environ)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := lookup("B"); b != "here" {
		t.Errorf("B is %q", b)
	}
	if c, _ := lookup("C"); c != "home" {
		t.Errorf("C is %q", c)
	}

	writeFile(t, filepath.Join(here, ".env"), "A=\"unclosed canary\nB\n")
	_, err = load(path, environ)
	if err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), ".env") {
		t.Errorf("bad .env: %v", err)
	}
}

func TestLoadReportsProblems(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	environ := newMapLookup(nil)
	if _, err := load(filepath.Join(folder, "none.yaml"), environ); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	path := filepath.Join(folder, "stoa.yaml")
	writeFile(t, path, "agent: {}\n")
	_, err := load(path, environ)
	if want := path + `:1:1: agent: is not a known key (did you mean "agents"?)`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	writeFile(t, path, " \n")
	if _, err := load(path, environ); err == nil || err.Error() != path+": is empty: it must have keys such as llms and agents" {
		t.Errorf("an empty file: %v", err)
	}
	writeFile(t, path, "name: "+strings.Repeat("x", 2*document.MaxBytes))
	var e *document.Error
	if _, err := load(path, environ); !errors.As(err, &e) {
		t.Errorf("a file of 2 MiB: %v", err)
	}
}

func newMapLookup(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}
