package source_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
)

func TestShortenID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 400)
	for _, id := range []string{"a\xff", "a\xfe", long, long + "x", "\xff" + long} {
		got := source.ShortenID(id)
		if len(got) > source.MaxIDBytes || !utf8.ValidString(got) || got == id {
			t.Errorf("%q: %q", id, got)
		}
	}
	if source.ShortenID("a\xff") == source.ShortenID("a\xfe") || source.ShortenID(long) == source.ShortenID(long+"x") {
		t.Error("two ids became one")
	}
	if got := source.ShortenID("a/b.md"); got != "a/b.md" {
		t.Errorf("a good id became %q", got)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"b", "a"}} {
		seen[source.Version(parts...)] = true
	}
	if len(seen) != 6 || source.Version("a") != source.Version("a") {
		t.Errorf("%d versions of 6 lists", len(seen))
	}
}

func TestNewAccess(t *testing.T) {
	t.Parallel()
	got := source.NewAccess([]string{" b", "a", "", "b"}, []string{" "})
	if diff := cmp.Diff(document.Access{Subjects: []string{"a", "b"}}, got); diff != "" {
		t.Error(diff)
	}
}
