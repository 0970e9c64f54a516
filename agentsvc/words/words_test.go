package words_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/words"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ extract, list, question string }{
		"":                                  {"", "", ""},
		"My dogs, my dog!":                  {"my dog", "my dog my dog", "dog"},
		"INV-2041 of O'Neill":               {"inv 2041 of o neill", "inv 2041 of o neill", "inv 2041 o neill"},
		"glass bus is":                      {"glass bus is", "glass bus is", "glass bus"},
		"ZÜRICH ne\u0301e":                  {"zürich ne\u0301e", "zürich ne\u0301e", "zürich ne\u0301e"},
		"犬の名前 abc犬":                         {"犬の の名 名前 abc 犬", "犬の の名 名前 abc 犬", "犬の の名 名前 abc 犬"},
		"\xff\x00 ' \" % _ what is it":      {"what is it", "what is it", ""},
		strings.Repeat("x", 100):            {strings.Repeat("x", 64), strings.Repeat("x", 64), strings.Repeat("x", 64)},
		strings.Repeat("x", 63) + "ü" + "y": {strings.Repeat("x", 63), strings.Repeat("x", 63), strings.Repeat("x", 63)},
	} {
		got := struct{ extract, list, question string }{
			strings.Join(words.Extract(text), " "), strings.Join(words.List(text), " "), strings.Join(words.ExtractQuestion(text), " "),
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(want)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
		for _, w := range words.List(text) {
			if !words.IsWord(w) {
				t.Errorf("%q is no word", w)
			}
		}
	}
	for _, w := range []string{"", "a b", "'", "a%", strings.Repeat("x", 65)} {
		if words.IsWord(w) {
			t.Errorf("%q is a word", w)
		}
	}
}

// TestBounds: a large text has a bounded number of words, repeated or not.
func TestBounds(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("tin ", 100_000)
	var different strings.Builder
	for i := range 10_000 {
		different.WriteString(strings.Repeat("a", i%60+1) + strings.Repeat("b", i/60+1)[:1+i/60%3] + " ")
	}
	for name, c := range map[string]struct{ got, most int }{
		"different": {len(words.Extract(different.String())), 500},
		"repeated":  {len(words.List(text)), 4000},
		"once":      {len(words.Extract(text)), 1},
		"question":  {len(words.ExtractQuestion(different.String())), 32},
	} {
		if c.got > c.most || c.got == 0 {
			t.Errorf("%s: %d words, at most %d", name, c.got, c.most)
		}
	}
}
