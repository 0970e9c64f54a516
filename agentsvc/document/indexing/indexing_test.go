package indexing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// forEachEngine runs f on each engine with a fixture.
func forEachEngine(t *testing.T, f func(f *fixture)) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) { f(newFixture(t, d)) })
}

// TestUploads indexes uploads: what they contain is found, what cannot be read says why, and a change replaces what was
// found before.
func TestUploads(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		f.setStore(acme, newStore(1))
		f.put(acme, "a.txt", "the warranty is two years\n\nreturns within a month")
		f.put(acme, "b.txt", "unreadable")
		f.startIndexer()
		f.waitIndexed(acme, 1)
		if d := diff.Diff([]string{"a.txt"}, f.search(acme, "warranty")); d != "" {
			f.Error(d)
		}
		if d := f.get(acme, "b.txt"); d.State != document.Failed || d.Error != "the file is encrypted" {
			f.Errorf("got %s: %s", d.State, d.Error)
		}
		f.put(acme, "a.txt", "the warranty is three years")
		f.put(acme, "b.txt", "readable by now")
		f.waitIndexed(acme, 2)
		if d := diff.Diff([]string(nil), f.search(acme, "returns")); d != "" {
			f.Error(d)
		}
		f.checkChunks(acme)
	})
}

// TestLargeDocument: the passes of a store write a document of many chunks, also where a crash has left a part of it, and delete its
// chunks and external vectors when it is replaced, deleted or goes with its store.
func TestLargeDocument(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		text := func(word string) string { return strings.Repeat(word+" of many\n\n", 299) + word }
		f.setStore(acme, f.withVectors(newStore(1), &scriptedEmbedder{model: "m"}, true))
		rest := func() int {
			return f.count(`SELECT (SELECT COUNT(*) FROM hidden_revision) + (SELECT COUNT(*) FROM chunk) + (SELECT COUNT(*) FROM removed_chunk)`)
		}
		f.put(acme, "a", text("first"))
		// The half of a commit that was killed.
		f.execSQL(`INSERT INTO hidden_revision (tenant, store, document, generation, revision, collection) SELECT tenant, store, id, 1, revision, '' FROM document`)
		f.execSQL(`INSERT INTO chunk (tenant, store, document, generation, revision, ordinal, id, start_at, end_at, page, heading, sheet, line, word_count, words, text)
			SELECT tenant, store, id, 1, revision, 7, 'x', 0, 0, 0, '', '', 0, 0, '', '' FROM document`)
		f.startIndexer()
		f.waitIndexed(acme, 1)
		for _, word := range []string{"second", "third"} {
			f.put(acme, "a", text(word))
			f.waitFor("the change is found", func() bool { return len(f.search(acme, word)) == 1 })
			f.waitFor("the version before is gone", func() bool { return rest() == 300 })
			f.checkChunks(acme)
		}
		if err := f.rows(acme).Documents.Delete(context.Background(), manual, "a", "", everyone); err != nil {
			f.Fatal(err)
		}
		f.waitFor("the deleted document is gone", func() bool { return rest() == 0 && len(f.vectors.list()) == 0 })
		f.put(acme, "b", text("fourth"))
		f.waitIndexed(acme, 1)
		f.setStore(acme, nil)
		f.waitFor("the store is gone", func() bool { return rest() == 0 && f.count(`SELECT COUNT(*) FROM document_store`) == 0 })
	})
}

// TestUnchangedCostNothing counts the texts that are embedded: chunks whose text is unchanged use the vector that they have.
func TestUnchangedCostNothing(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		e := &scriptedEmbedder{model: "m"}
		f.setStore(acme, f.withVectors(newStore(1), e, false))
		f.startIndexer()
		f.put(acme, "a", "one\n\ntwo\n\nthree\n\ntwo")
		f.waitIndexed(acme, 1)
		if n := e.count(); n != 3 {
			f.Errorf("%d texts were embedded, want 3: two are the same", n)
		}
		f.put(acme, "a", "one\n\ntwo\n\nfour\n\nthree")
		f.waitFor("the change is found", func() bool { return len(f.search(acme, "four")) == 1 })
		if n := e.count(); n != 4 {
			f.Errorf("%d texts were embedded after a change of one chunk, want 4", n)
		}
		// A new recipe with the same embedder cuts otherwise, and here cuts the same.
		s := f.withVectors(newStore(2), e, false)
		s.Spec.Recipe = "b"
		f.setStore(acme, s)
		f.waitFor("the generation is switched", func() bool { return f.status(acme).Generation == 2 })
		if n := e.count(); n != 4 {
			f.Errorf("%d texts were embedded after a change of the recipe, want 4", n)
		}
		if s := f.status(acme); s.EmbeddedTokens == 0 {
			f.Errorf("no tokens are counted: %+v", s)
		}
		f.checkChunks(acme)
	})
}

// TestCrash stops an indexer at each step as a kill does: it writes nothing more before another one has taken the store
// over. When it goes on, after that, it changes nothing.
func TestCrash(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		for i, step := range []string{"read", "cut", "embed", "upsert", "upserted"} {
			e := &scriptedEmbedder{model: "m"}
			s := f.withVectors(newStore(int64(i)+1), e, true)
			reached, goOn := make(chan struct{}), make(chan struct{})
			var once sync.Once
			halt := func(at string) {
				if at != step {
					return
				}
				stopped := false
				once.Do(func() {
					stopped = true
					close(reached)
				})
				if stopped {
					<-goOn
				}
			}
			read, cut := s.Read, s.Cut
			s.Read = func(ctx context.Context, name, mediaType string, body io.Reader) (document.Content, error) {
				halt("read")
				return read(ctx, name, mediaType, body)
			}
			s.Cut = func(ctx context.Context, c document.Content) ([]document.Chunk, error) {
				halt("cut")
				return cut(ctx, c)
			}
			e.setHook(func([]string) ([][]float32, error) { halt("embed"); return nil, nil })
			f.vectors.setHook(func(call string) error { halt(call); return nil })
			f.vectors.setAfter(func() { halt("upserted") })
			f.setStore(acme, s)
			for i := range 5 {
				f.put(acme, fmt.Sprint(i), fmt.Sprintf("%s %d\n\nsecond of %d", step, i, i))
			}
			stopFirst := f.startIndexer()
			<-reached
			f.execSQL(`UPDATE index_pass SET due_at = 0`)
			stopSecond := f.startIndexer()
			f.waitIndexed(acme, 5)
			close(goOn)
			stopFirst()
			f.makeRemovalsDue(acme)
			f.checkChunks(acme)
			stopSecond()
			if f.Failed() {
				f.Fatalf("after a crash at %s", step)
			}
		}
	})
}

// TestMemoryOfText: documents whose text is far longer than their upload are at work at the same time only as far as the memory
// of the process allows for the text.
func TestMemoryOfText(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		s := f.withVectors(newStore(1), &scriptedEmbedder{model: "m"}, false)
		s.MaxConcurrent = 4
		read, cut := s.Read, s.Cut
		var atWork, most atomic.Int32
		s.Read = func(ctx context.Context, name, mediaType string, body io.Reader) (document.Content, error) {
			c, err := read(ctx, name, mediaType, body)
			c.Sections[0].Text += strings.Repeat(" ", 1<<20)
			return c, err
		}
		s.Cut = func(ctx context.Context, c document.Content) ([]document.Chunk, error) {
			most.Store(max(most.Load(), atWork.Add(1)))
			defer atWork.Add(-1)
			for range 1000 {
				runtime.Gosched()
			}
			return cut(ctx, c)
		}
		f.setStore(acme, s)
		for i := range 20 {
			f.put(acme, fmt.Sprint(i), fmt.Sprint("text ", i))
		}
		// The memory suffices for four documents of an upload's size, and for the text of one.
		f.startIndexer(func(o *indexing.Options) { o.MemoryBytes = 9 << 20 })
		f.waitIndexed(acme, 20)
		if n := most.Load(); n != 1 {
			t.Errorf("%d documents were at work", n)
		}
	})
}

// TestTwoIndexers has two indexers with a lease that one of them keeps losing work on one store.
func TestTwoIndexers(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		e := &scriptedEmbedder{model: "m"}
		f.setStore(acme, f.withVectors(newStore(1), e, true))
		const documents = 120
		for i := range documents {
			f.put(acme, fmt.Sprint("d", i), fmt.Sprintf("text %d\n\nmore of %d", i, i))
		}
		short := func(o *indexing.Options) { o.Slice = 20 * time.Millisecond }
		f.startIndexer(short)
		f.startIndexer(short)
		for range 20 {
			f.execSQL(`UPDATE index_pass SET due_at = 0`)
		}
		f.waitIndexed(acme, documents)
		f.makeRemovalsDue(acme)
		f.checkChunks(acme)
	})
}

// TestDeleteWhileIndexed deletes a document at the moment at which it is embedded: it stays deleted, with its vectors.
func TestDeleteWhileIndexed(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		e := &scriptedEmbedder{model: "m"}
		f.setStore(acme, f.withVectors(newStore(1), e, true))
		f.put(acme, "a", "deleted")
		f.vectors.setAfter(func() {
			if err := f.rows(acme).Documents.Delete(context.Background(), manual, "a", "", everyone); err != nil {
				f.Error(err)
			}
		})
		f.startIndexer()
		f.waitFor("the document is gone", func() bool { return f.status(acme).Documents == 0 && len(f.vectors.list()) > 0 })
		f.vectors.setAfter(func() {})
		f.makeRemovalsDue(acme)
		f.checkChunks(acme)
		if n := f.count(`SELECT COUNT(*) FROM chunk`); n > 0 {
			f.Errorf("%d chunks are left", n)
		}
	})
}

// TestEmbedderFaults indexes three documents with an embedder that fails for a while, or for one of them.
func TestEmbedderFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		fail func(texts []string) ([][]float32, error)
		// lasting is whether the fault stays for the text "bad": then that document fails with the reason, and the others are
		// indexed. Otherwise the fault ends, and all are indexed.
		lasting bool
		reason  string // of the document, or of the store while the fault lasts
	}{
		{"wrong count", func([]string) ([][]float32, error) { return [][]float32{}, nil }, true, "answered with 0 vectors"},
		{"not a number", func(texts []string) ([][]float32, error) {
			return repeatVector(texts, []float32{float32(math.NaN()), 1, 1}), nil
		}, true, "no direction"},
		{"zero", func(texts []string) ([][]float32, error) { return repeatVector(texts, []float32{0, 0, 0}), nil }, true, "no direction"},
		{"refused text", func([]string) ([][]float32, error) {
			return nil, &embedder.Error{Vendor: "x", Status: 400, Message: "answered with HTTP 400"}
		}, true, "HTTP 400"},
		{"breaks at one text", func([]string) ([][]float32, error) {
			return nil, &embedder.Error{Vendor: "x", Status: 500, Message: "answered with HTTP 500", Retryable: true}
		}, true, "HTTP 500"},
		{"too many requests", func([]string) ([][]float32, error) {
			return nil, &embedder.Error{Vendor: "x", Status: 429, Message: "is asked too often", Retryable: true, RetryAfter: time.Millisecond}
		}, false, "asked too often"},
		{"away", func([]string) ([][]float32, error) { return nil, errors.New("dial tcp 10.0.0.1:443") }, false, "the embedder did not answer"},
		{"no budget", func([]string) ([][]float32, error) {
			return nil, &agentsvc.Error{Code: agentsvc.CodeExhausted, Message: "the budget month is used up", RetryAfter: time.Millisecond}
		}, false, "the budget month is used up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, dbtest.NewSQLite(t))
			e := &scriptedEmbedder{model: "m"}
			var ended atomic.Bool
			e.setHook(func(texts []string) ([][]float32, error) {
				if c.lasting && !strings.Contains(texts[0], "bad") || ended.Load() {
					return nil, nil
				}
				return c.fail(texts)
			})
			f.setStore(acme, f.withVectors(newStore(1), e, false))
			for _, id := range []string{"bad", "good", "great"} {
				f.put(acme, id, id)
			}
			f.startIndexer()
			if c.lasting {
				f.waitIndexed(acme, 2)
				if d := f.get(acme, "bad"); d.State != document.Failed || !strings.Contains(d.Error, c.reason) {
					t.Errorf("got %s: %s", d.State, d.Error)
				}
				return
			}
			f.waitFor("the store says why it waits", func() bool { return strings.Contains(f.status(acme).Error, c.reason) })
			f.waitFor("it is tried again", func() bool { return f.count(`SELECT MAX(attempts) FROM index_pass`) > 4 })
			if s := f.status(acme); s.Failed > 0 || s.Pending != 3 {
				t.Errorf("documents are blamed: %+v", s)
			}
			ended.Store(true)
			f.waitIndexed(acme, 3)
			f.waitFor("the error is gone", func() bool { return f.status(acme).Error == "" })
		})
	}
}

func repeatVector(texts []string, v []float32) (all [][]float32) {
	for range texts {
		all = append(all, v)
	}
	return all
}

// TestRetriesOfPass has an embedder that refuses connections: the pass is tried again max_retries times, then the store has
// the reason and the next pass is due after the pause. A request before makes one try.
func TestRetriesOfPass(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.NewSQLite(t))
	e := &scriptedEmbedder{model: "m"}
	var calls atomic.Int64
	e.setHook(func([]string) ([][]float32, error) {
		calls.Add(1)
		return nil, &embedder.RequestError{Vendor: "openai", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	})
	f.setStore(acme, f.withVectors(newStore(1), e, false))
	f.put(acme, "a", "text")
	// The retries come when they are due, not at the next poll.
	f.startIndexer(func(o *indexing.Options) { o.Pauses.Failed, o.PollInterval = 5*time.Minute, time.Hour })
	waits := func(want int64) func() bool {
		return func() bool {
			return calls.Load() == want && f.count(`SELECT COUNT(*) FROM index_pass WHERE holder = '' AND due_at > stoa_now() + 290000000`) == 1
		}
	}
	f.waitFor("the pass fails after its retries", waits(4))
	if s := f.status(acme); s.Error != "the embedder (openai) did not answer" || s.Pending != 1 || s.Failed != 0 {
		t.Errorf("the store says %+v", s)
	}
	f.requestPass(acme)
	f.waitFor("a request makes one try", waits(5))
	e.setHook(nil)
	f.requestPass(acme)
	f.waitIndexed(acme, 1)
	f.waitFor("the error is gone", func() bool { return f.status(acme).Error == "" })
}

// TestVectorStoreAway has the vector store down at the start, or in the middle: nothing fails, and nothing is left over.
func TestVectorStoreAway(t *testing.T) {
	t.Parallel()
	for name, healthyCalls := range map[string]int64{"at the start": 0, "in the middle": 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, dbtest.NewSQLite(t))
			var calls atomic.Int64
			var back atomic.Bool
			f.vectors.setHook(func(string) error {
				if calls.Add(1) > healthyCalls && !back.Load() {
					return &vectorstore.UnavailableError{Store: "qdrant", Message: "it cannot be reached", Err: errors.New("10.0.0.1")}
				}
				return nil
			})
			f.setStore(acme, f.withVectors(newStore(1), &scriptedEmbedder{model: "m"}, true))
			for i := range 20 {
				f.put(acme, fmt.Sprint(i), fmt.Sprint("text ", i))
			}
			f.startIndexer()
			f.waitFor("the store says why it waits", func() bool {
				return strings.Contains(f.status(acme).Error, "the vector store (qdrant) is not available")
			})
			f.waitFor("it is tried again", func() bool { return f.count(`SELECT MAX(attempts) FROM index_pass`) > 5 })
			if s := f.status(acme); s.Failed > 0 {
				t.Errorf("documents are blamed: %+v", s)
			}
			back.Store(true)
			f.waitIndexed(acme, 20)
			if err := f.rows(acme).Documents.Delete(t.Context(), manual, "3", "", everyone); err != nil {
				t.Fatal(err)
			}
			f.makeRemovalsDue(acme)
			f.checkChunks(acme)
		})
	}
}

// TestChangedEmbedder replaces the embedder: the new generation is built while searches find what they found before, and
// then takes its place as a whole, also in the external index.
func TestChangedEmbedder(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		first, second := &scriptedEmbedder{model: "first"}, &scriptedEmbedder{model: "second"}
		f.setStore(acme, f.withVectors(newStore(1), first, true))
		for i := range 10 {
			f.put(acme, fmt.Sprint(i), "common text")
		}
		f.startIndexer()
		f.waitIndexed(acme, 10)
		goOn := make(chan struct{})
		var held atomic.Int64
		second.setHook(func([]string) ([][]float32, error) {
			if held.Add(1) == 4 {
				<-goOn
			}
			return nil, nil
		})
		f.setStore(acme, f.withVectors(newStore(2), second, true))
		f.waitFor("the new generation is half built", func() bool { return held.Load() >= 4 })
		if n := len(f.search(acme, "common")); n != 10 {
			f.Errorf("%d documents are found while a generation is built, want 10", n)
		}
		if s := f.status(acme); s.Generation != 1 || s.Embedder != "first" {
			f.Errorf("the half built generation is in use: %+v", s)
		}
		close(goOn)
		f.waitFor("the new generation is in use", func() bool { s := f.status(acme); return s.Generation == 2 && s.Embedder == "second" })
		f.makeRemovalsDue(acme)
		if n := len(f.search(acme, "common")); n != 10 {
			f.Errorf("%d documents are found in the new generation, want 10", n)
		}
		f.checkChunks(acme)
	})
}

// TestUnusedCollection replaces the embedder before any document was committed with the first one, as if the process was killed
// after it had written to the external index: the collection of the first generation is dropped as a whole.
func TestUnusedCollection(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		first := f.withVectors(newStore(1), &scriptedEmbedder{model: "first"}, true)
		f.setStore(acme, first)
		f.put(acme, "a", "text")
		stop := f.startIndexer()
		f.waitIndexed(acme, 1)
		stop()
		// The commit did not happen.
		f.execSQL(`INSERT INTO removed_chunk (tenant, store, collection, chunk, available_at) SELECT tenant, store, $1, id, 0 FROM chunk`, "index/"+first.Collection(1))
		for _, table := range []string{"chunk_vector", "chunk", "document_live"} {
			f.execSQL(`DELETE FROM ` + table)
		}
		f.execSQL(`UPDATE document SET state = 'pending'`)
		var dropped atomic.Int64
		f.vectors.setHook(func(call string) error {
			if call == "drop" {
				dropped.Add(1)
			}
			return nil
		})
		f.setStore(acme, f.withVectors(newStore(2), &scriptedEmbedder{model: "second"}, true))
		f.startIndexer()
		f.waitFor("the new generation is in use", func() bool { return f.status(acme).Generation == 2 })
		f.makeRemovalsDue(acme)
		if n := dropped.Load(); n != 1 {
			f.Errorf("%d collections are dropped, want that of the first generation", n)
		}
		f.checkChunks(acme)
	})
}

// TestDroppedStore removes a store from the configuration, and brings it back while it is being deleted.
func TestDroppedStore(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		f.setStore(acme, f.withVectors(newStore(1), &scriptedEmbedder{model: "m"}, true))
		for i := range 10 {
			f.put(acme, fmt.Sprint(i), "text")
		}
		f.startIndexer()
		f.waitIndexed(acme, 10)
		var isDown atomic.Bool
		isDown.Store(true)
		f.vectors.setHook(func(string) error {
			if isDown.Load() {
				return &vectorstore.UnavailableError{Store: "qdrant"}
			}
			return nil
		})
		f.setStore(acme, nil)
		if s := f.status(acme); s.Documents > 0 {
			f.Errorf("the store is still there: %+v", s)
		}
		again := f.withVectors(newStore(3), &scriptedEmbedder{model: "m"}, true)
		f.setStore(acme, again)
		isDown.Store(false)
		f.waitFor("the store is made again, empty, and takes documents", func() bool {
			f.setStore(acme, again) // as the indexer does while ErrBeingDeleted is returned
			if f.status(acme).Name != manual || f.count(`SELECT COUNT(*) FROM document`) > 0 {
				return false
			}
			_, _, err := f.rows(acme).Documents.Put(context.Background(), manual, corpus.Upload{ID: "new", MediaType: "text/plain", Body: []byte("text")})
			return err == nil
		})
		f.waitIndexed(acme, 1)
		f.makeRemovalsDue(acme)
		f.checkChunks(acme)
		f.setStore(acme, nil)
		f.waitFor("no row is left", func() bool {
			return f.count(`SELECT (SELECT COUNT(*) FROM document_store) + (SELECT COUNT(*) FROM index_pass) + (SELECT COUNT(*) FROM chunk) + (SELECT COUNT(*) FROM removed_chunk)`) == 0
		})
		if ids := f.vectors.list(); len(ids) > 0 {
			f.Errorf("%d vectors are left", len(ids))
		}
	})
}

// TestDroppedEmptyStore removes a store without documents, which leaves nothing for a pass to do.
func TestDroppedEmptyStore(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		f.setStore(acme, newStore(1))
		if err := indexing.ApplyConfiguration(f.Context(), f.rows(acme), nil); err != nil {
			f.Error(err)
		}
		if n := f.count(`SELECT (SELECT COUNT(*) FROM document_store) + (SELECT COUNT(*) FROM index_pass)`); n > 0 {
			f.Errorf("%d rows are left", n)
		}
	})
}

// TestStoreDroppedByTwo removes a store in two processes at once: one that finds that the other has deleted the last row has
// nothing left to do, which is no error.
func TestStoreDroppedByTwo(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		for range 10 {
			f.setStore(acme, newStore(1))
			for i := range 3 {
				f.put(acme, fmt.Sprint(i), "text")
			}
			var all errgroup.Group
			for range 4 {
				all.Go(func() error { return indexing.ApplyConfiguration(context.Background(), f.rows(acme), nil) })
			}
			if err := all.Wait(); err != nil {
				f.Fatal(err)
			}
			f.setStore(acme, nil)
			stop := f.startIndexer()
			f.waitFor("the store is gone", func() bool { return f.count(`SELECT COUNT(*) FROM document_store`) == 0 })
			stop()
		}
	})
}

// TestVectorMemory indexes documents whose vectors take memory: it is reserved while they are made, and returned when the document is
// committed. One that needs more than an app may have fails with that reason, and the next is indexed.
func TestVectorMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.NewSQLite(t))
	var reserved, most atomic.Int64
	f.vectorMemory = capacity.NewPool(8<<20, func(n int64) {
		reserved.Store(n)
		most.Store(max(most.Load(), n))
	})
	const dimension, copies = 4096, 2
	e := &scriptedEmbedder{model: "m", hook: func(texts []string) ([][]float32, error) {
		vectors := make([][]float32, len(texts))
		for i := range vectors {
			vectors[i] = make([]float32, dimension)
			vectors[i][0] = 1
		}
		return vectors, nil
	}}
	f.setStore(acme, f.withVectors(newStore(1), e, false))
	f.setStore(globex, f.withVectors(newStore(1), e, false))
	paragraphs := func(n int) string {
		texts := make([]string, n)
		for i := range texts {
			texts[i] = fmt.Sprint("text ", i)
		}
		return strings.Join(texts, "\n\n")
	}
	f.put(acme, "a", paragraphs(20))
	f.startIndexer()
	f.waitIndexed(acme, 1)
	isReturned := func() bool { return reserved.Load() == 0 }
	f.waitFor("the memory is returned", isReturned)
	if want := int64(20 * 4 * dimension * copies); most.Load() != want {
		t.Errorf("%d bytes were reserved at most, want %d", most.Load(), want)
	}
	f.put(acme, "b", paragraphs(150)) // each batch of it fits, all together do not
	f.waitFor("the document has failed", func() bool { return f.status(acme).Failed == 1 })
	f.put(acme, "c", paragraphs(10))
	f.put(globex, "d", paragraphs(10))
	f.waitIndexed(acme, 2)
	f.waitIndexed(globex, 1)
	f.waitFor("the memory is returned", isReturned)
}

// TestOutdatedRuntime has a process that still has the revision before: it neither indexes by it nor deletes the new store.
func TestOutdatedRuntime(t *testing.T) {
	f := newFixture(t, dbtest.NewSQLite(t))
	t.Parallel()
	f.setStore(acme, newStore(2))
	f.mu.Lock()
	old := newStore(1)
	old.Spec.Recipe = "before"
	f.stores[acme] = map[string]*indexing.Store{manual: old}
	f.mu.Unlock()
	f.put(acme, "a", "text")
	f.startIndexer()
	claims := func() int { return f.count(`SELECT MAX(epoch) FROM index_pass`) }
	f.waitFor("the pass was claimed", func() bool { return claims() > 0 })
	f.mu.Lock()
	f.stores[acme] = nil // the store is new in the revision that the process does not have yet
	f.mu.Unlock()
	f.waitFor("the pass was claimed again", func() bool { return claims() > 1 })
	if s := f.status(acme); s.Documents != 1 || s.Pending != 1 {
		t.Errorf("got %+v", s)
	}
	f.mu.Lock()
	f.stores[acme] = map[string]*indexing.Store{manual: newStore(2)}
	f.mu.Unlock()
	f.waitIndexed(acme, 1)
}

// TestSuspendedApp suspends an app in the middle of a pass: it ends at once and goes on when the app is active again.
func TestSuspendedApp(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		e := &scriptedEmbedder{model: "m"}
		reached := make(chan struct{})
		var once sync.Once
		f.setStore(acme, f.withVectors(newStore(1), blockingEmbedder{e, func(ctx context.Context) {
			once.Do(func() {
				close(reached)
				<-ctx.Done()
			})
		}}, false))
		for i := range 5 {
			f.put(acme, fmt.Sprint(i), "text")
		}
		f.startIndexer(func(o *indexing.Options) { o.Lease = 300 * time.Millisecond })
		<-reached
		f.setStatus(acme, tenancy.Suspended)
		f.waitFor("the pass has ended", func() bool { return f.count(`SELECT COUNT(*) FROM index_pass WHERE holder <> ''`) == 0 })
		if s := f.status(acme); s.Pending != 5 {
			f.Errorf("documents of a suspended app are indexed: %+v", s)
		}
		f.setStatus(acme, tenancy.Active)
		f.waitIndexed(acme, 5)
	})
}

// blockingEmbedder waits before each call.
type blockingEmbedder struct {
	*scriptedEmbedder
	wait func(ctx context.Context)
}

// Embed implements [embedder.Embedder].
func (e blockingEmbedder) Embed(ctx context.Context, p agentsvc.Payer, purpose embedder.Purpose, texts []string) ([][]float32, error) {
	e.wait(ctx)
	return e.scriptedEmbedder.Embed(ctx, p, purpose, texts)
}

// TestDrain stops an indexer in the middle of a document: it returns at once, and another one goes on without waiting for
// the lease.
func TestDrain(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		e := &scriptedEmbedder{model: "m"}
		reached := make(chan struct{})
		var once sync.Once
		f.setStore(acme, f.withVectors(newStore(1), blockingEmbedder{e, func(ctx context.Context) {
			once.Do(func() {
				close(reached)
				<-ctx.Done()
			})
		}}, false))
		f.put(acme, "a", "text")
		stop := f.startIndexer(func(o *indexing.Options) { o.Lease = time.Hour })
		<-reached
		stop()
		f.startIndexer(func(o *indexing.Options) { o.Lease = time.Hour })
		f.waitIndexed(acme, 1)
		if d := f.get(acme, "a"); d.Error != "" || d.State != document.Indexed {
			f.Errorf("got %+v", d)
		}
	})
}

// TestFairness gives one app many documents: the only document of another app does not wait for them.
func TestFairness(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		const many = 400
		f.setStore(acme, newStore(1))
		f.setStore(globex, newStore(1))
		for i := range many {
			f.put(acme, fmt.Sprint(i), "text")
		}
		f.startIndexer(func(o *indexing.Options) { o.Passes, o.Slice = 1, 20*time.Millisecond })
		f.waitFor("the first app is at work", func() bool { return f.outcome("acme indexed") > 0 })
		before := f.outcome("acme indexed")
		f.put(globex, "a", "text")
		f.waitFor("the other app's document is indexed", func() bool { return f.outcome("globex indexed") == 1 })
		f.mu.Lock()
		after := 0
		for _, one := range f.order {
			if one == "globex indexed" {
				break
			}
			after++
		}
		f.mu.Unlock()
		if after >= many {
			f.Errorf("the other app waited for all %d documents (%d were done before)", after, before)
		}
		f.waitIndexed(acme, many)
	})
}

// TestFairPlaces gives one app many documents that take long to read: the document of another app gets the next place or the
// one after it, for documents and for memory, though many of the first app wait for one already.
func TestFairPlaces(t *testing.T) {
	const atOnce, ahead = 2, 10
	for name, change := range map[string]func(*indexing.Options){
		"documents": func(o *indexing.Options) { o.Documents = atOnce },
		"memory":    func(o *indexing.Options) { o.Documents, o.MemoryBytes = maxPlaces, atOnce<<20 },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dbtest.NewSQLite(t))
			began, release, other := make(chan string, 100), make(chan struct{}), make(chan struct{})
			slow, quick := newStore(1), newStore(1)
			slow.MaxConcurrent = maxPlaces
			slow.Read = func(ctx context.Context, name, mediaType string, body io.Reader) (document.Content, error) {
				began <- name
				select {
				case <-release:
				case <-ctx.Done():
				}
				return readText(ctx, name, mediaType, body)
			}
			quick.Read = func(ctx context.Context, name, mediaType string, body io.Reader) (document.Content, error) {
				close(other)
				return readText(ctx, name, mediaType, body)
			}
			f.setStore(acme, slow)
			f.setStore(globex, quick)
			for i := range 100 {
				f.put(acme, fmt.Sprint(i), "text")
			}
			f.startIndexer(change, func(o *indexing.Options) { o.Slice = time.Hour })
			<-began // one alone, until it is known that documents can be indexed
			release <- struct{}{}
			for range atOnce {
				<-began
			}
			f.put(globex, "a", "text")
			f.requestPass(globex)
			f.waitFor("the other app's pass is at work", func() bool {
				return f.count(`SELECT COUNT(*) FROM index_pass WHERE tenant = $1 AND holder <> ''`, string(globex)) == 1
			})
			for range ahead {
				release <- struct{}{}
				<-began
				select {
				case <-other:
					return
				case <-time.After(50 * time.Millisecond): // the other app may not have come to wait for a place yet
				}
			}
			t.Errorf("the other app's document waits for more than %d", ahead)
		})
	}
}

// maxPlaces is how many documents of a store may be at work.
const maxPlaces = 32

// TestSource indexes what a source lists, lists it again when that is due, and deletes only after a complete listing.
func TestSource(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		from := newListedSource(map[string]string{"a": "first", "b": "second", "c": "third"})
		f.setStore(acme, withSource(newStore(1), from))
		f.startIndexer()
		f.waitIndexed(acme, 3)
		// Without watch a source is not listed before its time has come.
		from.set(func(texts map[string]string) { texts["d"] = "fourth"; delete(texts, "a") })
		f.requestPass(acme)
		f.waitFor("the pass is over", func() bool {
			return f.count(`SELECT COUNT(*) FROM index_pass WHERE requested OR holder <> '' OR due_at <= stoa_now()`) == 0
		})
		if n := from.countLists(); n != 1 {
			f.Errorf("the source was listed %d times, want 1", n)
		}
		from.setFailure(source.Errorf("the folder is locked"))
		f.setStore(acme, withSource(newStore(2), from))
		f.waitFor("the store says why", func() bool { return f.status(acme).Error == "the folder is locked" })
		if ids := f.search(acme, "first"); len(ids) != 1 {
			f.Errorf("a listing that failed has deleted a document")
		}
		from.setFailure(nil)
		f.waitFor("the listing was repeated", func() bool { return len(f.search(acme, "first")) == 0 && len(f.search(acme, "fourth")) == 1 })
		f.waitIndexed(acme, 3)
		f.checkChunks(acme)
	})
}

// TestSourceReadAgain changes a source without a watch: a start of a process lists it, and so does a pass whose time has
// come, an hour after the listing before.
func TestSourceReadAgain(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		from := newListedSource(map[string]string{"a": "first"})
		f.setStore(acme, withSource(newStore(1), from))
		stop := f.startIndexer()
		f.waitIndexed(acme, 1)
		isIdle := func() bool {
			return f.count(`SELECT COUNT(*) FROM index_pass WHERE holder = '' AND due_at > stoa_now() AND cursor <> ''`) == 1
		}
		f.waitFor("the pass is over", isIdle)
		if n := f.count(`SELECT (due_at - stoa_now()) / 60000000 FROM index_pass`); n < 55 || n > 60 {
			f.Errorf("the next pass is due in %d minutes, want 60", n)
		}
		stop()
		from.set(func(texts map[string]string) { texts["a"] = "second" })
		f.execSQL(`UPDATE index_pass SET served_at = served_at - 60000000`)
		stop = f.startIndexer()
		f.waitFor("the start has read the source again", func() bool { return len(f.search(acme, "second")) == 1 })
		f.waitFor("the pass is over", isIdle)
		from.set(func(texts map[string]string) { texts["b"] = "third" })
		f.execSQL(`UPDATE index_pass SET due_at = stoa_now(), cursor = '{"version":"1","listed_at":1}'`)
		f.waitFor("the source was read when its time had come", func() bool { return len(f.search(acme, "third")) == 1 })
		lists := from.countLists()
		stop()
		f.startIndexer()
		f.setStore(globex, newStore(1))
		f.put(globex, "a", "text")
		f.waitIndexed(globex, 1)
		if n := from.countLists(); n != lists {
			f.Errorf("a start within seconds of a pass has listed the source again")
		}
	})
}

// TestLostSource has a source that lists almost nothing any more: the documents stay until that is confirmed.
func TestLostSource(t *testing.T) {
	f := newFixture(t, dbtest.NewSQLite(t))
	t.Parallel()
	texts := map[string]string{}
	for i := range 30 {
		texts[fmt.Sprint(i)] = "text"
	}
	from := newListedSource(maps.Clone(texts))
	s := withSource(newStore(1), from)
	s.Incremental = true
	f.setStore(acme, s)
	f.startIndexer()
	f.waitIndexed(acme, 30)
	from.set(func(texts map[string]string) { clear(texts) })
	s = withSource(newStore(2), from)
	f.setStore(acme, s)
	f.waitFor("the store says what to confirm", func() bool { return strings.Contains(f.status(acme).Error, "confirm the removal of the other 30") })
	if n := len(f.search(acme, "text")); n != 30 {
		t.Errorf("%d documents are found, want 30", n)
	}
	if err := f.rows(acme).Documents.AllowRemoval(t.Context(), manual); err != nil {
		t.Fatal(err)
	}
	f.waitFor("the documents are gone", func() bool { return f.status(acme).Documents == 0 })
}

// TestWatch changes a watched source: one of two indexers sees it, and the other takes over when that ends.
func TestWatch(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		from := newListedSource(map[string]string{"a": "first"})
		s := withSource(newStore(1), from)
		s.Watch = true
		f.setStore(acme, s)
		stop := f.startIndexer()
		f.waitIndexed(acme, 1)
		f.waitFor("the source is watched", func() bool { return f.count(`SELECT COUNT(*) FROM index_pass WHERE holder <> ''`) == 1 })
		from.set(func(texts map[string]string) { texts["b"] = "second" })
		f.waitFor("the change is found", func() bool { return len(f.search(acme, "second")) == 1 })
		// A watched store does not keep out the others of its app, or those of other apps.
		f.startIndexer(func(o *indexing.Options) { o.Passes = 1 })
		f.setStore(globex, newStore(1))
		f.put(globex, "a", "text")
		f.waitIndexed(globex, 1)
		stop()
		from.set(func(texts map[string]string) { texts["c"] = "third" })
		f.waitFor("the other process has taken over", func() bool { return len(f.search(acme, "third")) == 1 })
		// A new revision is listed by its own settings.
		s = withSource(newStore(2), newListedSource(map[string]string{"z": "last"}))
		f.setStore(acme, s)
		f.waitFor("the new revision is in use", func() bool { return len(f.search(acme, "last")) == 1 && len(f.search(acme, "first")) == 0 })
	})
}

// TestWatchAgain has a watched source that fails and comes back: its store does not say that it failed while it waits for
// changes. A listing that is requested meanwhile is made at once.
func TestWatchAgain(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		from := newListedSource(map[string]string{"a": "first"})
		s := withSource(newStore(1), from)
		s.Watch = true
		f.setStore(acme, s)
		f.startIndexer()
		f.waitIndexed(acme, 1)
		isWatched := func() bool { return f.count(`SELECT COUNT(*) FROM index_pass WHERE holder <> ''`) == 1 }
		f.waitFor("the source is watched", isWatched)
		from.setFailure(source.Errorf("the folder is away"))
		from.set(func(texts map[string]string) { texts["b"] = "second" })
		f.waitFor("the store says why", func() bool { return f.status(acme).Error == "the folder is away" })
		from.setFailure(nil)
		f.requestListing(acme)
		f.waitFor("the store does not fail any more", func() bool { return f.status(acme).Error == "" && len(f.search(acme, "second")) == 1 })
		f.waitFor("the source is watched again", isWatched)
		if n := f.count(`SELECT attempts FROM index_pass`); n != 0 {
			f.Errorf("%d failures count, want none", n)
		}
		lists := from.countLists()
		f.requestListing(acme)
		f.waitFor("the source is listed at once", func() bool { return from.countLists() > lists })
		f.waitFor("it is watched", isWatched)
	})
}

// TestDropCollections removes the vectors of an app that is deleted, also those that a pass under way has only noted, and
// names the collections of a vector store that it cannot reach any more.
func TestDropCollections(t *testing.T) {
	forEachEngine(t, func(f *fixture) {
		f.setStore(acme, f.withVectors(newStore(1), &scriptedEmbedder{model: "m"}, true))
		for i := range 5 {
			f.put(acme, fmt.Sprint(i), "text")
		}
		stop := f.startIndexer()
		f.waitIndexed(acme, 5)
		stop()
		app, err := f.openApp(f.Context(), acme)
		if err != nil {
			f.Fatal(err)
		}
		f.execSQL(`INSERT INTO removed_chunk (tenant, store, collection, chunk, available_at) VALUES ('acme', 'manual', 'elsewhere/c', 'x', 0)`)
		left, err := indexing.DropCollections(f.Context(), app)
		if err != nil {
			f.Fatal(err)
		}
		if d := diff.Diff([]string{"elsewhere/c"}, left); d != "" {
			f.Error(d)
		}
		if ids := f.vectors.list(); len(ids) > 0 || f.count(`SELECT COUNT(*) FROM index_pass`) > 0 {
			f.Errorf("%d vectors are left, or passes", len(ids))
		}
	})
}
