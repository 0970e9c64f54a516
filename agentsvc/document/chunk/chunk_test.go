package chunk_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/chunk"
)

// newContent returns a content of one section that begins at line 1.
func newContent(text string) document.Content {
	return document.Content{Sections: []document.Section{{Text: text, Place: document.Place{Line: 1}}}}
}

// textsOf returns the texts of chunks.
func textsOf(chunks []document.Chunk) (texts []string) {
	for _, c := range chunks {
		texts = append(texts, c.Text)
	}
	return texts
}

// TestCut checks where each strategy cuts.
func TestCut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		settings chunk.Settings
		text     string
		want     []string
	}{
		{"short", chunk.Settings{Size: 100}, " a text \n", []string{"a text"}},
		{"no text", chunk.Settings{Size: 100}, " \n\t\n", nil},
		{"at a word", chunk.Settings{Size: 12, PreserveWords: true}, "one two three four five", []string{"one two", "three four", "five"}},
		{"a word that ends at the limit", chunk.Settings{Size: 7, PreserveWords: true}, "one two three", []string{"one two", "three"}},
		{"inside a word", chunk.Settings{Size: 6}, "one two three", []string{"one tw", "o thre", "e"}},
		{"a word that is too long", chunk.Settings{Size: 5, PreserveWords: true}, "abcdefghijk", []string{"abcde", "fghij", "k"}},
		{"at a sentence", chunk.Settings{Size: 20, PreserveWords: true}, "It is here. (Or not.) And more", []string{"It is here.", "(Or not.) And more"}},
		{"at a paragraph", chunk.Settings{Size: 20, PreserveWords: true}, "A b c d e f g h\n\nI. J. K. L.", []string{"A b c d e f g h", "I. J. K. L."}},
		{"at a line", chunk.Settings{Size: 10, PreserveWords: true}, "ab cd\nef gh ij", []string{"ab cd", "ef gh ij"}},
		{"without spaces", chunk.Settings{Size: 4, PreserveWords: true}, "我喝茶。你喝水。", []string{"我喝茶。", "你喝水。"}},
		{"the rest is not too short", chunk.Settings{Size: 10, MinSize: 4}, "abcdefghijkl", []string{"abcdefgh", "ijkl"}},
		{"size above the largest", chunk.Settings{Size: 100, MaxSize: 4}, "abcdefgh", []string{"abcd", "efgh"}},
		{"overlap", chunk.Settings{Strategy: chunk.Overlapping, Size: 6, Overlap: 2}, "abcdefghijkl", []string{"abcdef", "efghij", "ijkl"}},
		{"overlap of words", chunk.Settings{Strategy: chunk.Overlapping, Size: 14, Overlap: 6, PreserveWords: true}, "one two three four five", []string{"one two three", "three four", "four five"}},
		{"overlap is for one strategy", chunk.Settings{Strategy: chunk.Simple, Size: 6, Overlap: 2}, "abcdefgh", []string{"abcdef", "gh"}},
		{"topic", chunk.Settings{Strategy: chunk.Semantic, Size: 150, MinSize: 40, MaxSize: 250, PreserveWords: true},
			"The kettle boils water. Boil the water in the kettle for tea. A kettle of water makes tea. " +
				"Invoices are sent by mail each month. Pay the invoices within a month. Unpaid invoices get a mail. ",
			[]string{"The kettle boils water. Boil the water in the kettle for tea. A kettle of water makes tea.",
				"Invoices are sent by mail each month. Pay the invoices within a month. Unpaid invoices get a mail."}},
		{"sentences over lines", chunk.Settings{Strategy: chunk.Semantic, Size: 45, MinSize: 5, MaxSize: 60, PreserveWords: true},
			"The first sentence is\nlonger than a line. The second\none too, as it is.\n\n", []string{"The first sentence is\nlonger than a line.", "The second\none too, as it is."}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, textsOf(chunk.Cut(newContent(tt.text), tt.settings, math.MaxInt64))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestPlaces checks that chunks keep the place of their text.
func TestPlaces(t *testing.T) {
	t.Parallel()
	type place = document.Place
	c := document.Content{Sections: []document.Section{
		{Text: "# A\n", Place: place{Heading: "A", Line: 3}},
		{Text: "## B\n\none two three\nfour five six\n", Place: place{Heading: "A > B", Line: 5}},
		{Text: "seven\n", Place: place{Heading: "A > B", Line: 12}},
		{Text: "# C\nlong enough\n", Place: place{Heading: "C", Line: 20}},
		{Text: "end\n", Place: place{Heading: "D", Line: 30}},
	}}
	got := chunk.Cut(c, chunk.Settings{Size: 28, MinSize: 8, PreserveWords: true}, math.MaxInt64)
	want := []document.Chunk{
		{Text: "# A\n## B\n\none two three", Place: place{Heading: "A > B", Line: 5}},
		{Ordinal: 1, Text: "four five six\nseven", Place: place{Heading: "A > B", Line: 8}},
		{Ordinal: 2, Text: "# C\nlong enough\nend", Place: place{Heading: "C", Line: 20}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(document.Chunk{}, "Start", "End")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	pages := document.Content{Sections: []document.Section{
		{Text: "the first page\n\n", Place: place{Page: 1}}, {Text: "the second page\n\n", Place: place{Page: 2}},
	}}
	for _, strategy := range []string{chunk.Simple, chunk.Overlapping, chunk.Semantic} {
		got := chunk.Cut(pages, chunk.Settings{Strategy: strategy, Size: 100, Overlap: 50, MinSize: 10}, math.MaxInt64)
		if len(got) != 2 || got[0].Place.Page != 1 || got[1].Place.Page != 2 || got[1].Text != "the second page" {
			t.Errorf("%s: %+v", strategy, got)
		}
	}
}

// drawContent returns any content.
func drawContent(t *rapid.T) document.Content {
	word := rapid.StringOfN(rapid.SampledFrom([]rune("abcdeéß茶喝.。!)\"1 \n\t\u0301")), 0, 12, -1)
	var c document.Content
	place := document.Place{Line: 1}
	for range rapid.IntRange(0, 6).Draw(t, "sections") {
		text := strings.Join(rapid.SliceOfN(word, 0, 40).Draw(t, "words"), rapid.SampledFrom([]string{" ", "\n", ". ", "", "\n\n"}).Draw(t, "between")) + "\n"
		switch rapid.IntRange(0, 3).Draw(t, "change") {
		case 0:
			place.Page++
		case 1:
			place.Heading = rapid.SampledFrom([]string{"", "a", "a > b"}).Draw(t, "heading")
		}
		c.Sections = append(c.Sections, document.Section{Text: text, Place: place})
		place.Line += strings.Count(text, "\n")
	}
	return c
}

// TestProperties checks what holds for any content and any settings.
func TestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawContent(t)
		s := chunk.Settings{
			Strategy: rapid.SampledFrom([]string{"", chunk.Simple, chunk.Overlapping, chunk.Semantic}).Draw(t, "strategy"),
			Size:     rapid.IntRange(-1, 60).Draw(t, "size"), Overlap: rapid.IntRange(-1, 80).Draw(t, "overlap"),
			MinSize: rapid.IntRange(-1, 80).Draw(t, "min"), MaxSize: rapid.IntRange(0, 80).Draw(t, "max"),
			PreserveWords: rapid.Bool().Draw(t, "words"),
		}
		text := c.Text()
		largest := s.MaxSize
		if largest <= 0 {
			largest = max(2000, s.Size)
		}
		if s.Size > 0 && s.Strategy != chunk.Semantic {
			largest = min(largest, s.Size)
		}
		end := 0
		for i, got := range chunk.Cut(c, s, math.MaxInt64) {
			if got.Ordinal != i || text[got.Start:got.End] != got.Text || !utf8.ValidString(got.Text) || strings.TrimSpace(got.Text) != got.Text || got.Text == "" {
				t.Fatalf("chunk %d: %+v", i, got)
			}
			if n := utf8.RuneCountInString(got.Text); n > largest {
				t.Fatalf("chunk %d has %d characters, at most %d are allowed", i, n, largest)
			}
			if s.Strategy != chunk.Overlapping && got.Start < end {
				t.Fatalf("chunk %d begins at %d, before %d", i, got.Start, end)
			}
			if got.End <= end {
				t.Fatalf("chunk %d ends at %d and has nothing new after %d", i, got.End, end)
			}
			if got.Start > end && strings.TrimSpace(text[end:got.Start]) != "" {
				t.Fatalf("%q before chunk %d is lost", text[end:got.Start], i)
			}
			requirePlace(t, c, got)
			end = got.End
		}
		if strings.TrimSpace(text[end:]) != "" {
			t.Fatalf("%q at the end is lost", text[end:])
		}
	})
}

// requirePlace checks that a chunk stands at its place: a section with that place has a part of it, and the line is the
// first of that part.
func requirePlace(t *rapid.T, c document.Content, got document.Chunk) {
	start, line := 0, 1
	for _, s := range c.Sections {
		end := start + len(s.Text)
		if start < got.End && end > got.Start {
			from := max(start, got.Start)
			want := s.Place
			want.Line = line + strings.Count(s.Text[:from-start], "\n")
			if want == got.Place {
				return
			}
		}
		start = end
		line += strings.Count(s.Text, "\n")
	}
	t.Fatalf("chunk %+v has a place that none of its text has", got)
}

// TestPreservesWords checks that no word is cut that is shorter than half a chunk.
func TestPreservesWords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,9}[.!]?`), 1, 200).Draw(t, "words")
		text := strings.Join(words, rapid.SampledFrom([]string{" ", "\n"}).Draw(t, "between"))
		s := chunk.Settings{Strategy: rapid.SampledFrom([]string{chunk.Simple, chunk.Overlapping, chunk.Semantic}).Draw(t, "strategy"),
			Size: rapid.IntRange(40, 100).Draw(t, "size"), Overlap: rapid.IntRange(0, 30).Draw(t, "overlap"), MinSize: rapid.IntRange(0, 40).Draw(t, "min"),
			MaxSize: 120, PreserveWords: true}
		chunks := chunk.Cut(newContent(text), s, math.MaxInt64)
		for i, got := range chunks {
			if got.Start > 0 && !unicode.IsSpace(rune(text[got.Start-1])) || got.End < len(text) && !unicode.IsSpace(rune(text[got.End])) {
				t.Fatalf("chunk %d %q cuts a word", i, got.Text)
			}
			if n := len(got.Text); n < s.MinSize/2-20 && len(chunks) > 1 {
				t.Fatalf("chunk %d of %d has %d characters: %q", i, len(chunks), n, got.Text)
			}
		}
	})
}

// hostileTexts are large texts of which a careless algorithm takes quadratic time.
var hostileTexts = map[string]func(size int) string{
	"words":               func(n int) string { return strings.Repeat("Tea with milk is good. Or not\n", n/30) },
	"one word":            func(n int) string { return strings.Repeat("a", n) },
	"stops":               func(n int) string { return strings.Repeat(".", n) },
	"brackets and stops":  func(n int) string { return "a." + strings.Repeat(")", n) },
	"stops with spaces":   func(n int) string { return strings.Repeat(". ", n/2) },
	"empty lines":         func(n int) string { return strings.Repeat("\n", n) + "a" },
	"marks":               func(n int) string { return "a." + strings.Repeat("\u0301", n/2) },
	"digits":              func(n int) string { return strings.Repeat("1", n) },
	"one-letter sections": func(n int) string { return strings.Repeat("a\n\n", n/3) },
	"different words": func(n int) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, "w%x. ", i*2654435761)
		}
		return b.String()
	},
}

// TestLinear checks that no text takes much longer than others: a quadratic step would take hours, which the time limit
// of the test ends. It also checks that nothing of them is lost. One text is as large as a document can be.
func TestLinear(t *testing.T) {
	t.Parallel()
	for name, build := range hostileTexts {
		for _, strategy := range []string{chunk.Overlapping, chunk.Semantic} {
			t.Run(name+", "+strategy, func(t *testing.T) {
				size := 512 << 10
				if name == "words" {
					size = 20 << 20
				}
				chunks := chunk.Cut(newContent(build(size)), chunk.Settings{Strategy: strategy, Size: 1000, Overlap: 200, MinSize: 100, MaxSize: 2000, PreserveWords: true}, math.MaxInt64)
				if len(chunks) == 0 || chunks[len(chunks)-1].End != len(strings.TrimRight(build(size), " \n")) {
					t.Errorf("%d chunks", len(chunks))
				}
			})
		}
	}
	t.Run("limit", func(t *testing.T) {
		for _, strategy := range []string{chunk.Simple, chunk.Overlapping, chunk.Semantic} {
			s := chunk.Settings{Strategy: strategy, Size: 50, MaxSize: 50, PreserveWords: true}
			if chunks := chunk.Cut(newContent(strings.Repeat("A word. ", 100_000)), s, 1000); len(chunks) != 1001 {
				t.Errorf("%s: %d chunks", strategy, len(chunks))
			}
		}
	})
	t.Run("sections", func(t *testing.T) {
		var c document.Content
		for i := range 50_000 {
			c.Sections = append(c.Sections, document.Section{Text: "text\n", Place: document.Place{Page: i + 1}})
		}
		if chunks := chunk.Cut(c, chunk.Settings{Size: 1000, MinSize: 2}, math.MaxInt64); len(chunks) != len(c.Sections) {
			t.Errorf("%d chunks", len(chunks))
		}
	})
}
