package redact

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"stoa/agentsvc/config/document"
)

// FuzzMaskSecrets checks that no input causes a panic, and that what Decode returns can be encoded, masked and restored, as
// a document and as a text.
func FuzzMaskSecrets(f *testing.F) {
	files, _ := filepath.Glob("../testdata/*/*")
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if filepath.Ext(file) == ".txtar" {
			src = txtar.Parse(src).Files[0].Data
		}
		f.Add(src)
	}
	for _, src := range []string{
		"", "<<: {<<: {a: b}}", "llms: {\"\": {}}", "llms: {a: null}", "llms: {a: {script: [null, {then: [null]}]}}", "agents: {a: {tools: [[[[]]]]}}",
		"name: '********'", "name: 'https://********@a/?b=********'", "llms: {a: {api_key: {b: [1]}}}", "tools: {t: {env: [a]}}",
	} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		doc, err := document.Decode(src)
		if err != nil {
			return
		}
		masked := MaskSecrets(doc)
		if _, err := json.Marshal(masked); err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal(RestoreSecrets(masked, doc)); err != nil {
			t.Error(err)
		}
		text, asJSON, err := MaskText(src)
		if err != nil || !json.Valid(asJSON) {
			t.Fatalf("%s: %v", asJSON, err)
		}
		shown, err := document.Decode(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(masked, shown); diff != "" {
			t.Errorf("%s is not what is masked (-want +got):\n%s", text, diff)
		}
		if back := RestoreText(text, src); string(back) != string(src) {
			t.Errorf("restored %s, want %s", back, src)
		}
	})
}
