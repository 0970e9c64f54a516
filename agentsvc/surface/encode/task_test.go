package encode

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
)

// TestPartRecords checks the records of parts. A data part has a media type also if its author gave none.
func TestPartRecords(t *testing.T) {
	text, value := "t", map[string]any{"k": 1.0}
	got := newPartRecords([]agentsvc.Part{
		agentsvc.TextPart(text), {Data: &agentsvc.Data{Value: value}}, {Data: &agentsvc.Data{MediaType: "application/geo+json", Value: value}},
		{File: &agentsvc.File{Name: "f", URI: "https://x"}},
	})
	want := []PartRecord{
		{Type: "text", Text: &text}, {Type: "data", MimeType: "application/json", Data: value}, {Type: "data", MimeType: "application/geo+json", Data: value},
		{Type: "file", Name: "f", URL: "https://x"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
