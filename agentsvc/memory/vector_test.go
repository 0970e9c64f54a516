package memory_test

import (
	"path/filepath"
	"testing"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/embedder/embeddertest"
	"stoa/agentsvc/embedder/ollama"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/chromem"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// startEmbedder starts a server of vectors and returns a function that makes an embedder of a model on it.
func startEmbedder(t *testing.T) (*embeddertest.Server, func(model string) embedder.Embedder) {
	server := embeddertest.NewServer(t)
	out := egress.New(egress.Options{PrivateNetwork: true})
	t.Cleanup(out.Close)
	return server, func(model string) embedder.Embedder {
		return ollama.New(embedder.Options{Model: model, BaseURL: server.URL, HTTP: out.HTTP()})
	}
}

// embeddedTexts returns every text for which a vector was requested.
func embeddedTexts(server *embeddertest.Server) (texts []string) {
	texts = []string{}
	for _, r := range server.Requests() {
		texts = append(texts, r.Texts()...)
	}
	return texts
}

func TestVector(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		server, model := startEmbedder(t)
		s := memory.New(d, "acme")
		v := memory.NewVectorFinder(s, model("m"), chromem.New(chromem.Options{}), 0)
		checkTexts(t, "nothing yet", findTexts(t, v, ana, "zzz", true))
		addMemories(t, s, ana, "aaa aaa", "bbb bbb", "aab")
		addMemories(t, s, bob, "aaa of bob")
		checkTexts(t, "like", findTexts(t, v, ana, "aaaa", true), "aaa aaa", "aab")
		checkTexts(t, "all", findTexts(t, v, ana, "aaaa", false), "aaa aaa", "aab", "bbb bbb")
		checkTexts(t, "bob's", findTexts(t, v, bob, "aaaa", false), "aaa of bob")
		addMemories(t, s, ana, "ccc")
		checkTexts(t, "a later one", findTexts(t, v, ana, "cccc", true), "ccc")
		checkTexts(t, "vectors asked for", embeddedTexts(server),
			"aaa aaa", "bbb bbb", "aab", "aaaa", "aaaa", "aaa of bob", "aaaa", "ccc", "cccc")
	})
}

// TestVectorTwoProcesses checks two processes on the same rows: vectors are computed once, and what one process erases
// the other does not find.
func TestVectorTwoProcesses(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		server, model := startEmbedder(t)
		s := memory.New(d, "acme")
		here := memory.NewVectorFinder(s, model("m"), chromem.New(chromem.Options{}), 0)
		there := memory.NewVectorFinder(s, model("m"), chromem.New(chromem.Options{}), 0)
		addMemories(t, s, ana, "aaa", "bbb")
		checkTexts(t, "here", findTexts(t, here, ana, "a", true), "aaa")
		checkTexts(t, "there", findTexts(t, there, ana, "a", true), "aaa")
		checkTexts(t, "vectors asked for", embeddedTexts(server), "aaa", "bbb", "a", "a")
		if n, err := memory.NewRecall(s, here, memory.Options{}).ForgetMemories(t.Context(), memory.Filter{Subject: "ana"}); err != nil || n != 2 {
			t.Fatal(n, err)
		}
		checkTexts(t, "here after", findTexts(t, here, ana, "a", false))
		addMemories(t, s, ana, "ccc")
		checkTexts(t, "there after", findTexts(t, there, ana, "a", false), "ccc")

		other := memory.NewVectorFinder(s, model("other"), chromem.New(chromem.Options{}), 0)
		before := len(embeddedTexts(server))
		checkTexts(t, "another model", findTexts(t, other, ana, "c", true), "ccc")
		checkTexts(t, "makes vectors of its own", embeddedTexts(server)[before:], "ccc", "c")
	})
}

// TestVectorFolder checks that the vectors of an earlier process are found in its folder, and erased there.
func TestVectorFolder(t *testing.T) {
	t.Parallel()
	_, model := startEmbedder(t)
	s := memory.New(dbtest.NewSQLite(t), "acme")
	folder := filepath.Join(t.TempDir(), "vectors")
	open := func() *memory.VectorFinder {
		return memory.NewVectorFinder(s, model("m"), chromem.New(chromem.Options{Path: folder}), 0)
	}
	files := func() int {
		names, err := filepath.Glob(filepath.Join(folder, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	addMemories(t, s, ana, "aaa", "bbb")
	checkTexts(t, "first", findTexts(t, open(), ana, "a", true), "aaa")
	before := files()
	if before < 2 {
		t.Fatalf("%d files are in the folder", before)
	}
	again := open()
	checkTexts(t, "again", findTexts(t, again, ana, "a", true), "aaa")
	if _, err := memory.NewRecall(s, open(), memory.Options{}).ForgetMemories(t.Context(), memory.Filter{Subject: "ana"}); err != nil {
		t.Fatal(err)
	}
	if n := files(); n != 0 {
		t.Errorf("%d files are left of what was erased", n)
	}
}

// TestVectorBound checks that idle parts of the index are dropped from memory, and are found again.
func TestVectorBound(t *testing.T) {
	t.Parallel()
	server, model := startEmbedder(t)
	s := memory.New(dbtest.NewSQLite(t), "acme")
	v := memory.NewVectorFinder(s, model("m"), chromem.New(chromem.Options{}), 3)
	addMemories(t, s, ana, "aaa", "bbb")
	addMemories(t, s, bob, "bbb", "aaa of bob")
	for range 3 {
		checkTexts(t, "ana", findTexts(t, v, ana, "a", true), "aaa")
		checkTexts(t, "bob", findTexts(t, v, bob, "a", true), "aaa of bob")
	}
	if n := len(embeddedTexts(server)); n != 4+6 {
		t.Errorf("%d vectors were asked for, want 4 memories and 6 questions", n)
	}
}

func TestVectorFails(t *testing.T) {
	t.Parallel()
	server, model := startEmbedder(t)
	s := memory.New(dbtest.NewSQLite(t), "acme")
	v := memory.NewVectorFinder(s, model("m"), chromem.New(chromem.Options{}), 0)
	addMemories(t, s, ana, "aaa")
	server.FailWith(500)
	if _, err := v.FindMemories(t.Context(), scopeOf(ana), "a", 3, true); err == nil {
		t.Error("an embedder that is down finds something")
	}
	server.FailWith(0)
	checkTexts(t, "later", findTexts(t, v, ana, "a", true), "aaa")
}

// TestVectorMemory checks that idle parts of the index are dropped when there is no memory for more vectors.
func TestVectorMemory(t *testing.T) {
	t.Parallel()
	server, model := startEmbedder(t)
	server.SetEmbedText(func(text string) []float32 {
		return append(embeddertest.LetterVector(text), make([]float32, vectorstore.MaxDimension)...)[:vectorstore.MaxDimension]
	})
	s := memory.New(dbtest.NewSQLite(t), "acme")
	// Five vectors of 16 KiB fit into the app's share, ten do not.
	index := chromem.New(chromem.Options{Memory: capacity.NewPool(200<<10, nil).NewReservation("acme", 1)})
	v := memory.NewVectorFinder(s, model("m"), index, 0)
	addMemories(t, s, ana, "aaa", "bbb", "ccc", "ddd", "eee")
	addMemories(t, s, bob, "aaa of bob", "bbb", "ccc", "ddd", "eee")
	for range 2 {
		checkTexts(t, "ana", findTexts(t, v, ana, "a", true), "aaa")
		checkTexts(t, "bob", findTexts(t, v, bob, "a", true), "aaa of bob")
	}
}
