package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"stoa/agentsvc/config/document"
)

// FuzzParse checks that no input causes a panic, and that every error is a *document.Error whose problems can be encoded
// as JSON.
func FuzzParse(f *testing.F) {
	for _, src := range loadCorpus(f) {
		f.Add(src, true)
		f.Add(src, false)
	}
	lookup := newMapLookup(map[string]string{"NAME": "a: [", "HOME": "/root"})
	f.Fuzz(func(t *testing.T, src []byte, tenant bool) {
		cfg, err := Parse(src, Options{Tenant: tenant, Lookup: lookup})
		var e *document.Error
		switch {
		case err == nil && cfg == nil:
			t.Error("neither a configuration nor an error")
		case err != nil && (!errors.As(err, &e) || len(e.Problems) == 0 || err.Error() == ""):
			t.Errorf("an error without problems: %#v", err)
		case err != nil:
			if _, err := json.Marshal(e.Problems); err != nil {
				t.Error(err)
			}
		}
	})
}

func loadCorpus(f *testing.F) [][]byte {
	f.Helper()
	var all [][]byte
	files, _ := filepath.Glob("testdata/*/*")
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if filepath.Ext(file) == ".txtar" {
			src = txtar.Parse(src).Files[0].Data
		}
		all = append(all, src)
	}
	for _, src := range []string{
		"", "\x00", "a", "*a", "&a *a", "? [a]: b", "? &a : *a", "<<: *x", "<<: [1]", "<<: {<<: {a: b}}", "&a {<<: *a}", "!!int x",
		"version: !!int x", "name: !!binary aGk=", "llms: !!null {}", "- - - -", "agents: {a: {tools: [[[[]]]]}}", "agents: {a: {<<: 1}}",
		"server: {port: 0x}", "server: {port: 1_0}", "server: {port: -0b1}", "llms: {a: {temperature: .inf}}", "name: ${", "name: $${${}",
		"agents: {a: {timeout: 9999999999999h}}", "%YAML 9.9\n---\n", "--- >\n\t", "a: \"\\xff\"", "{\"a\": \"\\ud800\"}", "\xef\xbb\xbf{}", "<<", "[<<]",
		"llms: {\"\": {}}", "llms: {a: null}", "llms: {a: {script: [null, {then: [null]}]}}", "tools: {t: {parameters: {a: *x}}}", "... ---", "#", "name: '********'",
	} {
		all = append(all, []byte(src))
	}
	return all
}
