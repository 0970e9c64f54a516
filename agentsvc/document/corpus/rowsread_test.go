package corpus_test

import (
	"fmt"
	"testing"
	"time"

	"stoa/agentsvc/document/corpus"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestRowsRead: what an upload, the indexing of a document and the state of a store read does not grow with the documents that
// the store has.
func TestRowsRead(t *testing.T) {
	t.Parallel()
	url := dbtest.NewPostgresURL(t)
	var pass corpus.Pass
	open := func(d *db.DB) *fixture {
		return &fixture{Store: corpus.New(d, "acme", corpus.Limits{}), d: d, tenant: "acme", passes: corpus.NewPasses(d)}
	}
	const documents = 600
	steps := []struct {
		name string
		do   func(f *fixture)
	}{
		{"an upload", func(f *fixture) { f.put(t, "new", "text") }},
		{"the indexing of a document", func(f *fixture) { f.indexNext(t, pass) }},
		{"a changed upload and its indexing", func(f *fixture) { f.index(t, pass, "d00001") }},
		{"the state of the store", func(f *fixture) {
			if s, err := f.Documents.StoreStatus(t.Context(), "manual"); err != nil || s.Documents <= documents {
				t.Error(s, err)
			}
		}},
		{"the next attempt", func(f *fixture) {
			if _, found, err := f.Index.NextAttempt(t.Context(), "manual"); err != nil || found {
				t.Error(found, err)
			}
		}},
	}
	dbtest.CountRowsRead(t, url, func(d *db.DB) {
		f := open(d)
		f.ensureStore(t, "upload", "r1")
		pass = f.claim(t)
		for i := range documents {
			f.index(t, pass, fmt.Sprintf("d%05d", i))
		}
	})
	for _, step := range steps {
		if n := dbtest.CountRowsRead(t, url, func(d *db.DB) { step.do(open(d)) }); n > 100 {
			t.Errorf("%s reads %d rows with %d documents", step.name, n, documents)
		}
	}
}

// index uploads a document and indexes it.
func (f *fixture) index(t *testing.T, pass corpus.Pass, id string) {
	t.Helper()
	f.put(t, id, fmt.Sprint("text of ", time.Now().UnixNano()))
	f.indexNext(t, pass)
}

// indexNext indexes the first document that waits.
func (f *fixture) indexNext(t *testing.T, pass corpus.Pass) {
	t.Helper()
	pending, err := f.Index.NextPending(t.Context(), "manual", "", 100)
	if err != nil || len(pending) != 1 {
		t.Fatal(len(pending), err)
	}
	if err := f.Index.CommitDocument(t.Context(), pass, newCommit(pending[0], 1, "one\ntwo")); err != nil {
		t.Fatal(err)
	}
}
