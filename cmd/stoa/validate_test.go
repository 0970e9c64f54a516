package main

import (
	"path/filepath"
	"testing"
)

// TestValidateExamples checks that stoa validate accepts the examples.
func TestValidateExamples(t *testing.T) {
	for _, name := range []string{"KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"} {
		t.Setenv(name, "x")
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d examples (%v)", len(files), err)
	}
	for _, file := range files {
		if _, err := (&validateCmd{File: file}).checkFile(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
