package retrieval_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stoa/agentsvc/document"
	"stoa/agentsvc/words"
	"stoa/tenancy/db/dbtest"
)

// question is a question of the quality test with the document that answers it.
type question struct{ text, answer string }

// loadQuestions makes a set of questions of the pages in docs: a heading is a question, and its section, without the
// heading, the document that answers it. Headings with fewer than two words that are not common, and headings that occur
// twice, are left out; their sections stay as documents.
func loadQuestions(t *testing.T) (docs []testDocument, questions []question) {
	t.Helper()
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages in docs: %v", err)
	}
	seen := map[string]int{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		for i, section := range strings.Split("\n"+string(text), "\n#")[1:] {
			heading, body, _ := strings.Cut(strings.TrimLeft(section, "#"), "\n")
			heading, body = strings.TrimSpace(heading), strings.TrimSpace(body)
			if len(words.Extract(body)) < 10 {
				continue
			}
			id := fmt.Sprintf("%s#%d", filepath.Base(page), i)
			docs = append(docs, testDocument{ID: id, Title: title, Chunks: cutLines(body, 800)})
			if len(words.ExtractQuestion(heading)) >= 2 {
				questions = append(questions, question{heading, id})
				seen[heading]++
			}
		}
	}
	return docs, slices.DeleteFunc(questions, func(q question) bool { return seen[q.text] > 1 })
}

// TestQuality holds the quality of a search on the project's own documentation: recall@5 and nDCG@10 of words, vectors and
// both. The vectors are those of the embedder without a model, so this measures the fusion and not what a model knows.
func TestQuality(t *testing.T) {
	t.Parallel()
	docs, questions := loadQuestions(t)
	s := newTestStore(t, dbtest.NewSQLite(t), newHashing(), nil, docs...)
	o := s.options()
	o.VectorWeight = 0.7 // as package runtime sets it for this embedder
	type quality struct{ recall, gain float64 }
	got := map[document.Mode]quality{}
	for _, mode := range []document.Mode{document.Text, document.Vector, document.Hybrid} {
		var sum quality
		for _, q := range questions {
			found := search(t, o, document.Query{Text: q.text, Mode: mode, Limit: 10})
			// One document is relevant, so the ideal gain is 1.
			if rank := slices.Index(documentsOf(found.Passages), q.answer); rank >= 0 {
				sum.gain += 1 / math.Log2(float64(rank+2))
				if rank < 5 {
					sum.recall++
				}
			}
		}
		n := float64(len(questions))
		got[mode] = quality{sum.recall / n, sum.gain / n}
		t.Logf("%-6s recall@5 %.3f  nDCG@10 %.3f  (%d questions, %d documents)", mode, got[mode].recall, got[mode].gain, len(questions), len(docs))
	}
	const tolerance = 0.01
	hybrid, text, vector := got[document.Hybrid], got[document.Text], got[document.Vector]
	if hybrid.recall < max(text.recall, vector.recall)-tolerance || hybrid.gain < max(text.gain, vector.gain)-tolerance {
		t.Errorf("both together are worse than the better one: %+v", got)
	}
}

// cutLines cuts a text into chunks of at most size bytes, at lines where it can.
func cutLines(text string, size int) (chunks []string) {
	chunk := ""
	for line := range strings.Lines(text) {
		line = line[:min(len(line), size)]
		if len(chunk)+len(line) > size {
			chunks, chunk = append(chunks, strings.ToValidUTF8(chunk, "")), ""
		}
		chunk += line
	}
	return append(chunks, strings.ToValidUTF8(chunk, ""))
}
