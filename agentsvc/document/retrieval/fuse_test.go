package retrieval

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
)

func TestFuse(t *testing.T) {
	t.Parallel()
	text := func(ids string) list { return newTestList(document.Text, ids, false) }
	vector := func(ids string) list { return newTestList(document.Vector, ids, false) }
	full := func(ids string) list { return newTestList(document.Vector, ids, true) }
	scored := func(leg document.Mode, isFull bool, hits ...hit) list { return list{hits, leg, isFull} }
	for _, c := range []struct {
		name      string
		lists     []list
		threshold float64
		want      string
	}{
		{"nothing", nil, 0, ""},
		{"empty lists", []list{text(""), vector("")}, 0, ""},
		{"one list keeps its order", []list{text("a b c")}, 0, "a b c"},
		{"the same lists", []list{text("a b c"), vector("a b c")}, 0, "a b c"},
		{"found by both beats the first of one", []list{text("a b"), vector("c b")}, 0, "b c a"},
		{"found by both, low, beats the first of one", []list{text("a x1 x2 x3 b"), vector("c y1 y2 y3 b")}, 0, "b c a y1 x1 y2 x2 y3 x3"},
		{"among equals the one with a vector comes first", []list{text("a"), vector("b")}, 0, "b a"},
		// The scores of vectors in these lists are 0.9, 0.8, 0.7 ...
		{"threshold", []list{vector("a b c d")}, 0.75, "a b"},
		{"threshold of what words found too", []list{text("d a"), vector("a b c d")}, 0.75, "a b"},
		{"words alone, not in a list that has all", []list{text("z a"), vector("a b c")}, 0.75, "a b"},
		{"words alone, in no list, where more may fit", []list{text("z a"), full("a b")}, 0.75, "a z b"},
		{"words alone, in no list, which ends below", []list{text("z a"), full("a b c d")}, 0.75, "a b"},
		{"no vectors, no threshold", []list{text("a b")}, 0.75, "a b"},
		{"vectors that are orthogonal or opposite", []list{scored(document.Vector, false, hit{"a", 0.1}, hit{"b", 0}, hit{"c", -0.4})}, 0, "a"},
		{"no number", []list{scored(document.Vector, false, hit{"a", math.NaN()})}, 0, ""},
		{"words found it, its vector is opposite", []list{text("b z"), scored(document.Vector, false, hit{"a", 0.1}, hit{"b", -0.4})}, 0, "a b z"},
		{"words found it, its vector is below the threshold", []list{text("b"), scored(document.Vector, true, hit{"a", 0.9}, hit{"b", -0.4})}, 0.5, "a"},
		{"words without a score", []list{scored(document.Text, false, hit{"a", 2}, hit{"b", 0}, hit{"c", -1})}, 0, "a"},
		{"one wording finds it", []list{scored(document.Vector, false, hit{"a", -0.1}), scored(document.Vector, false, hit{"a", 0.2})}, 0, "a"},
		{"several wordings", []list{text("a b"), text("b c"), text("b d")}, 0, "b a c d"},
	} {
		var got []string
		for _, x := range fuse(c.lists, 1, c.threshold) {
			got = append(got, x.ID)
			if x.score <= 0 || x.score > 1 {
				t.Errorf("%s: the score of %s is %v", c.name, x.ID, x.score)
			}
			for _, part := range []*float64{x.scores.Vector, x.scores.Text} {
				if part != nil && *part <= 0 {
					t.Errorf("%s: a part of the score of %s is %v", c.name, x.ID, *part)
				}
			}
		}
		if diff := cmp.Diff(strings.Fields(c.want), append([]string{}, got...)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// newTestList returns a list of chunks whose scores are 0.9, 0.8, 0.7 and so on.
func newTestList(leg document.Mode, ids string, isFull bool) list {
	l := list{leg: leg, isFull: isFull}
	for i, id := range strings.Fields(ids) {
		l.hits = append(l.hits, hit{id, 0.9 - 0.1*float64(i)})
	}
	return l
}

// newTestChunk returns a chunk of a document, with its best score.
func newTestChunk(doc string, ordinal, start int, text string, score float64) candidate {
	return candidate{FoundChunk: corpus.FoundChunk{
		ID: fmt.Sprintf("%s/%d", doc, ordinal), Document: doc,
		Chunk: document.Chunk{Ordinal: ordinal, Start: start, End: start + len(text), Text: text, Place: document.Place{Page: ordinal + 1}},
	}, score: score}
}

func TestCollapse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("The warranty of the device lasts for two years after its purchase in any shop. ", 3) + "Part one of the text."
	for _, c := range []struct {
		name string
		in   []candidate
		want []string
	}{
		{"equal texts", []candidate{newTestChunk("a", 0, 0, "Two years of warranty", 1), newTestChunk("b", 0, 0, "two  YEARS of warranty!", .9)}, []string{"a/0"}},
		{"different texts", []candidate{newTestChunk("a", 0, 0, "Two years of warranty", 1), newTestChunk("b", 0, 0, "Three years of warranty", .9)}, []string{"a/0", "b/0"}},
		{"nearly equal texts", []candidate{newTestChunk("a", 0, 0, long, 1), newTestChunk("b", 0, 0, long+" Printed in May.", .9)}, []string{"a/0"}},
		{"one text contains the other", []candidate{newTestChunk("a", 0, 0, "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu", 1),
			newTestChunk("b", 0, 0, "alpha beta gamma delta epsilon", .9)}, []string{"a/0", "b/0"}},
		{"overlap of one document", []candidate{newTestChunk("a", 0, 0, long, 1), newTestChunk("a", 1, 10, long, .9)}, []string{"a/0", "a/1"}},
		{"no words", []candidate{newTestChunk("a", 0, 0, "---", 1), newTestChunk("b", 0, 0, "***", .9)}, []string{"a/0"}},
	} {
		var got []string
		collapsed := newCollapser()
		for _, one := range c.in {
			collapsed.add(one)
		}
		for _, x := range collapsed.kept {
			got = append(got, x.ID)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	s := NewSearcher(Options{Store: "s"})
	big := strings.Repeat("x", maxPassageBytes-10)
	for _, c := range []struct {
		name  string
		in    []candidate
		limit int
		want  []string // id of the best chunk, page, text
	}{
		{"none", nil, 3, []string{}},
		{"single chunks", []candidate{newTestChunk("a", 0, 0, "one", 1), newTestChunk("b", 0, 0, "two", .9)}, 3, []string{"a/0 p1 one", "b/0 p1 two"}},
		{"limit", []candidate{newTestChunk("a", 0, 0, "one", 1), newTestChunk("b", 0, 0, "two", .9)}, 1, []string{"a/0 p1 one"}},
		{"adjacent without a gap", []candidate{newTestChunk("a", 1, 3, "two", 1), newTestChunk("a", 0, 0, "one", .9)}, 3, []string{"a/1 p1 onetwo"}},
		{"adjacent with white space between", []candidate{newTestChunk("a", 0, 0, "one", 1), newTestChunk("a", 1, 5, "two", .9)}, 3, []string{"a/0 p1 one\ntwo"}},
		{"overlap", []candidate{newTestChunk("a", 0, 0, "one two three", 1), newTestChunk("a", 1, 8, "three four", .9)}, 3, []string{"a/0 p1 one two three four"}},
		{"overlap of trimmed chunks", []candidate{newTestChunk("a", 0, 0, "one two three", 1), newTestChunk("a", 1, 7, "three four", .9)}, 3, []string{"a/0 p1 one two three four"}},
		{"a repeated word that is no overlap", []candidate{newTestChunk("a", 0, 0, "one two", 1), newTestChunk("a", 1, 8, "two three", .9)}, 3, []string{"a/0 p1 one two\ntwo three"}},
		{"not adjacent", []candidate{newTestChunk("a", 0, 0, "one", 1), newTestChunk("a", 2, 9, "three", .9)}, 3, []string{"a/0 p1 one", "a/2 p3 three"}},
		{"a third chunk connects two", []candidate{newTestChunk("a", 0, 0, "one", 1), newTestChunk("a", 2, 6, "333", .9), newTestChunk("a", 1, 3, "two", .8)}, 3, []string{"a/0 p1 onetwo333"}},
		{"joining frees a place", []candidate{newTestChunk("a", 0, 0, "one", 1), newTestChunk("a", 1, 3, "two", .9), newTestChunk("b", 0, 0, "x", .8)}, 2,
			[]string{"a/0 p1 onetwo", "b/0 p1 x"}},
		{"too long to join", []candidate{newTestChunk("a", 0, 0, big, 1), newTestChunk("a", 1, len(big), "longer than ten", .9)}, 3,
			[]string{"a/0 p1 " + big, "a/1 p2 longer than ten"}},
		{"of different documents", []candidate{newTestChunk("a", 0, 0, "one", 1), newTestChunk("b", 1, 3, "two", .9)}, 3, []string{"a/0 p1 one", "b/1 p2 two"}},
	} {
		got := []string{}
		passages, _ := s.joinChunks(c.in, c.limit)
		for _, p := range passages {
			got = append(got, fmt.Sprintf("%s p%d %s", p.ChunkID, p.Place.Page, p.Text))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestModelAnswers checks that what models answer is bounded, and that everything unusable in it is ignored.
func TestModelAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer string
		want   []int
	}{
		{"3, 1, 2", []int{2, 0, 1}},
		{"[2] then [2] and 1", []int{1, 0}},
		{"0, 4, -7, 99999999999999999999, 3", []int{2}},
		{"none of them", nil},
		{"", nil},
		{strings.Repeat("1,", 5000), []int{0}},
	} {
		if diff := cmp.Diff(c.want, parseOrder(c.answer, 3)); diff != "" {
			t.Errorf("order %.40q: %s", c.answer, diff)
		}
	}
	for _, c := range []struct {
		answer string
		want   []string
	}{
		{"1. length of guarantee\n- duration of warranty\n\n* how many years", []string{"length of guarantee", "duration of warranty", "how many years"}},
		{"the warranty?\n\"guarantee period\"\nguarantee period\n2) years covered\nmore words\nand more words", []string{"guarantee period", "years covered", "more words"}},
		{"what is it\n---\n", nil},
		{strings.Repeat("word ", 1000), []string{cutText(strings.Repeat("word ", 1000), maxWordingBytes)}},
	} {
		got := parseWordings(c.answer, "The warranty?", 3)
		for i, g := range got {
			got[i] = strings.TrimSpace(g)
		}
		for i, w := range c.want {
			c.want[i] = strings.TrimSpace(w)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("wordings %.40q: %s", c.answer, diff)
		}
	}
}
