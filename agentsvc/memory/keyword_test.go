package memory_test

import (
	"testing"

	"stoa/agentsvc/memory"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestKeyword(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := memory.New(d, "acme")
		k := memory.KeywordFinder{Store: s}
		addMemories(t, s, ana,
			"My dog is called Rex and he likes balls",
			"I live in Zürich, at Bahnhofstrasse 5",
			"My cat is called Tom",
			"私の犬の名前はポチです",
			"The invoice INV-2041 was paid by O'Neill & sons",
		)
		for _, c := range []struct {
			question string
			want     []string
		}{
			{"What is the name of my dog?", []string{"My dog is called Rex and he likes balls"}},
			{"Dogs!", []string{"My dog is called Rex and he likes balls"}},
			{"who is called Tom", []string{"My cat is called Tom", "My dog is called Rex and he likes balls"}},
			{"ZÜRICH", []string{"I live in Zürich, at Bahnhofstrasse 5"}},
			{"invoice 2041", []string{"The invoice INV-2041 was paid by O'Neill & sons"}},
			{"犬の名前", []string{"私の犬の名前はポチです"}},
			{"what is it that you are", nil},
			{"weather tomorrow", nil},
			{"", nil},
			{`' OR 1=1; " NEAR( * AND NOT :`, nil},
			{`o'neill" OR scope:*`, []string{"The invoice INV-2041 was paid by O'Neill & sons"}},
		} {
			checkTexts(t, c.question, findTexts(t, k, ana, c.question, true), c.want...)
		}
	})
}

// TestKeywordSure checks that memories with little relation to the question are left out of the background.
func TestKeywordSure(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := memory.New(d, "acme")
		k := memory.KeywordFinder{Store: s}
		addMemories(t, s, ana, "we talked about colour", "one more on colour", "again colour")
		question := "Which colour has the bicycle, helmet, tent and stove in the catalogue?"
		checkTexts(t, "sure", findTexts(t, k, ana, question, true))
		checkTexts(t, "asked for", findTexts(t, k, ana, question, false), "again colour", "one more on colour", "we talked about colour")
	})
}
