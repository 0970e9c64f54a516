package document

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAddErrors finds the position of a path in a document, or of the nearest value above it.
func TestAddErrors(t *testing.T) {
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
		err := withErrors(src, &Error{Problems: []Problem{{Path: c.path, Message: "is wrong"}}}).Err("f.yaml")
		want := "f.yaml:" + c.want + ": " + c.path + ": is wrong"
		if c.path == "" {
			want = "f.yaml: is wrong"
		}
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.path, diff)
		}
	}
	reported := &Error{Problems: []Problem{{Path: "tools.a", Line: 40, Column: 2, Message: "is wrong"}}}
	if got := withErrors(src, reported).Err("").Error(); got != "40:2: tools.a: is wrong" {
		t.Errorf("what has a place gets another: %s", got)
	}
	if other := errors.New("other"); !errors.Is(Read([]byte(src), nil, "").AddErrors(other), other) {
		t.Error("another error is changed")
	}
	if got := withErrors("", &Error{Problems: []Problem{{Path: "a", Message: "x"}}}).Err("").Error(); got != "a: x" {
		t.Errorf("in an empty document: %s", got)
	}
}

// withErrors returns the document src with the problems of err.
func withErrors(src string, err error) *Document {
	doc := Read([]byte(src), nil, "")
	if doc.AddErrors(err) != nil {
		panic("it is another error")
	}
	return doc
}

// TestAddErrorsOmits leaves out what may follow from a known problem: the same value, one above it and one below.
func TestAddErrorsOmits(t *testing.T) {
	t.Parallel()
	lookup := func(string) (string, bool) { return "", false }
	doc := Read([]byte("llms: {a: {script: \"${X}\"}}\ntools: {a.b: {url: x}}\n"), lookup, "is not set")
	err := doc.AddErrors(&Error{Problems: []Problem{
		{Path: "llms.a", Message: "above"}, {Path: "llms.a.script", Message: "same"}, {Path: "llms.a.script[0].then", Message: "below"},
		{Path: "tools.a.b.url", Message: "is wrong"}, {Path: "llms.a.scripts", Message: "beside"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := "1:8: llms.a.scripts: beside\n" +
		"1:20: llms.a.script: needs the variable X, which is not set; ${X:default} would give it a default\n2:20: tools.a.b.url: is wrong"
	if diff := cmp.Diff(want, doc.Err("").Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
