package runtime

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/retrieval"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/vectorstore"
	"stoa/billing/usage"
)

// DocumentVectors is what makes and keeps the vectors of a document store.
type DocumentVectors struct {
	Embedder embedder.Embedder
	// External has the vectors, nil = the platform's database has them.
	External vectorstore.Store
	// Collection returns the collection of a generation in External.
	Collection func(generation int64) string
}

// lexicalWeight is the weight of vectors that were made of words alone: words find more than they do.
const lexicalWeight = 0.7

// searchBuilder builds the searchers of the document stores.
type searchBuilder struct {
	*hostAccess
	meters metering
	models map[string]llm.Provider
}

// buildSearchers sets the vectors and the searcher of each document store.
func (b *searchBuilder) buildSearchers(all *Documents) {
	for _, s := range all.Stores() {
		var err error
		s.Vectors, err = b.newDocumentVectors(s)
		b.addProblem("document_stores."+s.Name, err)
		if s.Vectors != nil {
			// The model is a part of the recipe: that of an embedder without a vendor can change with the version of Stoa.
			s.Spec.Embedder = s.Vectors.Embedder.Model()
			sum := sha256.Sum256([]byte(s.Spec.Recipe + " " + s.Spec.Embedder))
			s.Spec.Recipe = hex.EncodeToString(sum[:16])
		}
		s.agentSearcher = retrieval.NewSearcher(b.searchOptions(all.Rows.Search, s))
		s.Searcher = payingSearcher{s.agentSearcher, b.meters}
	}
}

// newDocumentVectors returns what makes the vectors of a store, nil if it has no embedder.
func (b *searchBuilder) newDocumentVectors(s *DocumentStore) (*DocumentVectors, error) {
	if s.Embedder == nil {
		return nil, nil
	}
	v := &DocumentVectors{Embedder: (&memoryBuilder{b.hostAccess, b.meters}).newEmbedder(s.Config.Embedder)}
	if s.Config.VectorStore == "" {
		return v, nil
	}
	v.Collection = func(generation int64) string {
		return corpus.CollectionName(b.tenant.ID, s.Name, generation, v.Embedder.Model())
	}
	var err error
	v.External, err = b.newVectorStoreWithCollection(s.Config.VectorStore, s.Config.Collection)
	return v, err
}

// searchOptions returns the settings of a store's searches.
func (b *searchBuilder) searchOptions(rows *corpus.Search, s *DocumentStore) retrieval.Options {
	c := s.Config.Search
	o := retrieval.Options{
		Store: s.Name, Corpus: rows, TopK: c.TopK, Threshold: c.Threshold, RerankMaxResults: c.RerankMaxResults, MultiQueryCount: c.MultiQueryCount, Log: b.log,
	}
	if hook := b.meters.instrumentation.OnDocumentSearch; hook != nil {
		app := b.tenant.Name
		o.Hooks.OnSearch = func(outcome retrieval.Outcome, took time.Duration) { hook(app, outcome, took) }
	}
	o.Hooks.OnPart = b.meters.instrumentation.OnSearchPart
	if s.Vectors != nil {
		o.Embedder, o.External, o.Collection = s.Vectors.Embedder, s.Vectors.External, s.Vectors.Collection
	}
	if s.Embedder != nil && s.Embedder.Provider == "hashing" {
		o.VectorWeight = lexicalWeight
	}
	if c.EnableHyDE {
		o.HyDE = b.models[c.HyDELLM]
	}
	if c.EnableRerank {
		o.Rerank = b.models[cmp.Or(c.RerankLLM, b.cfg.Defaults.LLM)]
	}
	if c.EnableMultiQuery {
		o.MultiQuery = b.models[cmp.Or(c.MultiQueryLLM, b.cfg.Defaults.LLM)]
	}
	return o
}

// payingSearcher is a searcher outside of runs. It implements [DocumentSearcher].
type payingSearcher struct {
	searcher *retrieval.Searcher
	meters   metering
}

// Search implements [DocumentSearcher].
func (s payingSearcher) Search(ctx context.Context, payer agentsvc.Payer, q document.Query) (document.Result, error) {
	return s.searcher.Search(ctx, s.meters.newPayerScope(ctx, payer), q)
}

// newPayerScope returns the scope of model calls outside of a run, whose usage is written at once.
func (met metering) newPayerScope(ctx context.Context, payer agentsvc.Payer) agentsvc.RunScope {
	scope := agentsvc.RunScope{Session: agentsvc.SessionKey{Owner: payer.Owner}}
	if met.meter == nil {
		return scope
	}
	scope.Usage = &agentsvc.UsageRecorder{Agent: payer.Agent, Owner: payer.Owner, Record: func(u agentsvc.Usage) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		if err := met.meter.WriteUsage(ctx, usage.RunFacts{Agent: payer.Agent, Owner: payer.Owner, Events: []agentsvc.Event{{Usage: &u}}}); err != nil {
			met.log.Warn("the usage of a search could not be recorded", "error", err)
		}
	}}
	return scope
}

// storeContents says what is in a document store, by the type of its source.
var storeContents = map[string]string{
	"upload":    "the documents that were uploaded to %q",
	"directory": "the files of %q",
	"sql":       "the rows of database tables in %q",
	"api":       "the documents of %q",
}

// newSearchTools returns a tool for each document store of an agent. Its passages pass the agent's guardrail.
func (b *agentBuilder) newSearchTools(a *config.Agent, g *agentGuardrail) []tool.Tool {
	var tools []tool.Tool
	for _, name := range a.DocumentStores {
		s := b.documents.stores[name]
		search := retrieval.NewTool(s.agentSearcher, fmt.Sprintf(storeContents[s.Config.Source.Type], name), g.passageFilter())
		tools = append(tools, tool.WithSettings(search, tool.Settings{Timeout: retrieval.CallTimeout}))
	}
	return tools
}

// newBackground returns what an agent adds to its system prompt: memories, and passages of its document stores. It is nil
// if there is neither.
func (b *agentBuilder) newBackground(a *config.Agent, g *agentGuardrail) backgroundFunc {
	var parts []backgroundFunc
	if b.recall != nil {
		parts = append(parts, b.recall.WithTextFilter(g.filterText).BuildBackground)
	}
	if a.IncludeContext {
		c := retrieval.Context{Limit: a.IncludeContextLimit, MaxLength: a.IncludeContextMaxLength, Filter: g.passageFilter()}
		for _, name := range a.DocumentStores {
			c.Searchers = append(c.Searchers, b.documents.stores[name].agentSearcher)
		}
		parts = append(parts, c.Build)
	}
	if len(parts) == 0 {
		return nil
	}
	return g.guardBackground(func(ctx context.Context, scope agentsvc.RunScope, conversation []agentsvc.Entry) string {
		text := ""
		for _, part := range parts {
			if add := part(ctx, scope, conversation); text == "" {
				text = add
			} else if add != "" {
				text += "\n\n" + add
			}
		}
		return text
	})
}
