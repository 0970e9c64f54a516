package source_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
)

func TestShortenID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 400)
	for _, id := range []string{"a\xff", "a\xfe", long, long + "x", "\xff" + long, "a\nb", "a\u202eb"} {
		got := source.ShortenID(id)
		if len(got) > source.MaxIDBytes || !source.IsPrintable(got) || got == id {
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
	for range 2 { // the same parts have the same version
		seen[source.Version("a", "b")] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d versions of 6 lists", len(seen))
	}
}

// TestHeld checks that the content of a listing that keeps all of its items is read again beyond the bound, and that what
// was opened counts no more.
func TestHeld(t *testing.T) {
	t.Parallel()
	var held source.Held
	text, again := strings.Repeat("x", 5<<19), 0
	newOpen := func() func(context.Context) (io.ReadCloser, error) {
		return held.NewOpen(text, func(context.Context) (string, error) { again++; return text, nil })
	}
	var opens []func(context.Context) (io.ReadCloser, error)
	for range 5 {
		opens = append(opens, newOpen())
	}
	for i, open := range opens {
		f, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != text {
			t.Errorf("%d: %d bytes, %v", i, len(got), err)
		}
	}
	if again != 2 {
		t.Errorf("%d documents were read again, want 2", again)
	}
	if _, err := newOpen()(t.Context()); err != nil || again != 2 {
		t.Errorf("%v, %d were read again", err, again)
	}
}

func TestNewAccess(t *testing.T) {
	t.Parallel()
	got := source.NewAccess([]string{" b", "a", "", "b"}, []string{" "})
	if diff := cmp.Diff(document.Access{Subjects: []string{"a", "b"}}, got); diff != "" {
		t.Error(diff)
	}
}
