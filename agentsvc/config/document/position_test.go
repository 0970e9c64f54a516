package document

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAddPositions finds the position of a path in a document, or of the nearest value above it.
func TestAddPositions(t *testing.T) {
	t.Parallel()
	const src = `llms:
  m: &m {provider: scripted, script: [{then: []}, {then: [{say: "${X}"}]}]}
  other: {<<: *m}
tools:
  a.b: {url: http://x, headers: {"two words": x}}
  a: {b: 1}
  "two words": {type: command}
`
	for _, c := range []struct{ path, want string }{
		{"llms.m.script[1].then[0].say", "2:65"},
		{"llms.m.script[0].then", "2:40"},
		{"llms.m.script[7]", "2:30"},
		{"llms.m.nothing", "2:3"},
		{"llms.other.script[1]", "2:51"},
		{"tools.a.b.url", "5:14"},
		{"tools.a.b.headers.two words", "5:47"},
		{`tools.a.b.headers."two words"`, "5:47"},
		{"tools.two words.type", "7:23"},
		{"nothing", "1:1"},
		{"", ""},
	} {
		err := AddPositions(&Error{Problems: []Problem{{Path: c.path, Message: "is wrong"}}}, "f.yaml", []byte(src))
		want := "f.yaml:" + c.want + ": " + c.path + ": is wrong"
		if c.path == "" {
			want = "f.yaml: is wrong"
		}
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.path, diff)
		}
	}
	reported := &Error{Problems: []Problem{{Path: "tools.a", Line: 40, Column: 2, Message: "is wrong"}}}
	if got := AddPositions(reported, "", []byte(src)).Error(); got != "40:2: tools.a: is wrong" {
		t.Errorf("what has a place gets another: %s", got)
	}
	if other := errors.New("other"); !errors.Is(AddPositions(other, "", []byte(src)), other) {
		t.Error("another error is changed")
	}
	if got := AddPositions(&Error{Problems: []Problem{{Path: "a", Message: "x"}}}, "", []byte(": : [")).Error(); got != "a: x" {
		t.Errorf("in a document that cannot be read: %s", got)
	}
}
