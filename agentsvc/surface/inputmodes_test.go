package surface

import (
	"testing"

	"stoa/agentsvc"
)

func TestModes(t *testing.T) {
	t.Parallel()
	file := func(kind string) agentsvc.Part { return agentsvc.Part{File: &agentsvc.File{MediaType: kind}} }
	markdown := agentsvc.Part{Text: "*x*", TextType: "Text/Markdown; charset=utf-8"}
	data := agentsvc.Part{Data: &agentsvc.Data{Value: map[string]any{}}}
	for _, c := range []struct {
		name  string
		modes []string
		part  agentsvc.Part
		want  bool
	}{
		{"text", []string{"text/plain"}, agentsvc.TextPart("x"), true},
		{"text where only images are read", []string{"image/*"}, agentsvc.TextPart("x"), false},
		{"any text", []string{"text/*"}, agentsvc.TextPart("x"), true},
		{"text with a type", []string{"text/plain"}, markdown, true},
		{"text of a type that is read", []string{"text/markdown"}, markdown, true},
		{"text of another type", []string{"text/html"}, markdown, false},
		{"image", []string{"text/plain", "image/png"}, file("image/png"), true},
		{"another image", []string{"text/plain", "image/png"}, file("image/gif"), false},
		{"any image", []string{"image/*"}, file("Image/GIF; q=1"), true},
		{"another family", []string{"image/*"}, file("imagery/gif"), false},
		{"of no type", []string{"image/*"}, file(""), false},
		{"anything", []string{"*/*"}, file(""), true},
		{"data", []string{"text/plain"}, data, false},
		{"data that is read", []string{"application/json"}, data, true},
		{"data of its own type", []string{"application/json"}, agentsvc.Part{Data: &agentsvc.Data{MediaType: "application/geo+json"}}, false},
		{"no type at all", []string{"*"}, file("image/png"), false},
	} {
		if kind, got := matchInputMode(c.modes, c.part); got != c.want {
			t.Errorf("%s: %v of %s, want %v", c.name, got, kind, c.want)
		}
	}
}
