package llm_test

import (
	"errors"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

func TestFiles(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	file := func(media, uri string, size int) agentsvc.File {
		return agentsvc.File{Name: "f", MediaType: media, URI: uri, Bytes: make([]byte, size)}
	}
	tests := []struct {
		name string
		file agentsvc.File
		ok   string // the providers that accept it
	}{
		{"png", file("image/png", "", 1), "openai anthropic gemini ollama"},
		{"jpeg by another name", file("Image/JPG; q=1", "", 1), "openai anthropic gemini ollama"},
		{"svg", file("image/svg+xml", "", 1), ""},
		{"pdf", file("application/pdf", "", 1), ""},
		{"no media type", file("", "", 1), ""},
		{"empty", file("image/png", "", 0), ""},
		{"5 MB", file("image/png", "", 5*mb), "openai anthropic gemini ollama"},
		{"over 5 MB", file("image/png", "", 5*mb+1), "openai gemini ollama"},
		{"20 MB", file("image/webp", "", 20*mb), "openai gemini ollama"},
		{"over 20 MB", file("image/webp", "", 20*mb+1), ""},
		{"video", file("video/mp4", "", 1), "gemini"},
		{"video as browsers name it", file("video/quicktime", "", 1), "gemini"},
		{"audio", file("audio/wav", "", 1), "gemini"},
		{"mp3", file("audio/mpeg", "", 1), "gemini"},
		{"https", file("image/png", "https://example.com/a.png", 0), "openai gemini"},
		{"http", file("image/png", "http://example.com/a.png", 0), "openai gemini"},
		{"https, untyped", file("", "https://example.com/a.png", 0), "openai"},
		{"https video", file("video/mp4", "https://example.com/a.mp4", 0), "gemini"},
		{"cloud storage", file("video/avi", "gs://bucket/a.avi", 0), "gemini"},
		{"local file", file("image/png", "file:///etc/passwd", 0), ""},
		{"data URL", file("image/png", "data:image/png;base64,aGk=", 0), ""},
		{"no host", file("image/png", "https:///a.png", 0), ""},
		{"no URL", file("image/png", "https://[", 0), ""},
	}
	for _, tt := range tests {
		for _, provider := range []string{"openai", "anthropic", "gemini", "ollama", "scripted"} {
			conversation := []agentsvc.Entry{
				{Result: &agentsvc.ToolResult{}},
				{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{{File: &agentsvc.File{Name: "made.pdf"}}}}},
				{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{{Text: "x"}, {File: &tt.file}}}},
			}
			err := llm.FileSupportOf(provider).CheckFiles(conversation)
			var invalid *agentsvc.Error
			if want := strings.Contains(tt.ok, provider); want != (err == nil) || err != nil && (!errors.As(err, &invalid) || invalid.Field != `file "f"`) {
				t.Errorf("%s at %s: %v, want it taken: %v", tt.name, provider, err, want)
			}
		}
	}
}
