package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/document/retrieval"
)

// Documents counts the indexing of documents and the searches. Its methods are the hooks of an indexer, see [indexing.Hooks],
// and of searchers, see [retrieval.Hooks]. Durations are in seconds.
type Documents struct {
	recorder          *Recorder
	total, chunks     intCounter
	passes            intCounter
	step, passElapsed metric.Float64Histogram

	searches                   intCounter
	searchElapsed, partElapsed metric.Float64Histogram
}

// documentOutcomes, passOutcomes and searchOutcomes are the values of the labels outcome.
var (
	documentOutcomes = []string{string(indexing.OutcomeIndexed), string(indexing.OutcomeFailed), string(indexing.OutcomePostponed), string(indexing.OutcomeRemoved)}
	passOutcomes     = []string{string(indexing.PassCompleted), string(indexing.PassYielded), string(indexing.PassHeld), string(indexing.PassEnded)}
	searchOutcomes   = []string{string(retrieval.Complete), string(retrieval.Degraded), string(retrieval.Failed)}
)

// newDocuments defines the metrics of documents.
func newDocuments(r *Recorder) *Documents {
	m := r.defined
	return &Documents{
		recorder: r,
		total: m.newCounter("stoa_documents", "Documents of document stores that were worked on: indexed, failed (for good), postponed (tried again later), removed (from the source).",
			"outcome", "app"),
		chunks: m.newCounter("stoa_document_chunks", "Chunks of the documents that were indexed.", "app"),
		passes: m.newCounter("stoa_index_passes", "Passes over document stores: completed, yielded (to other apps, to go on later), held (by the source, the embedder, the vector store or a budget, "+
			"to go on later), ended (with the process, the app or the lease).", "outcome", "app"),
		step:        m.newHistogram("stoa_document_step_duration", "s", "Time of a step of a document's indexing: read, extract, chunk, embed, store (in an external vector store), commit.", secondsBuckets, "step"),
		passElapsed: m.newHistogram("stoa_index_pass_duration", "s", "Time of a pass over a document store.", secondsBuckets, "outcome"),
		searches: m.newCounter("stoa_document_searches", "Searches of document stores: complete, degraded (a part was left out, such as the vectors), failed (the database did not answer, "+
			"or the caller went away).", "outcome", "app"),
		searchElapsed: m.newHistogram("stoa_document_search_duration", "s", "Time of a search of a document store.", secondsBuckets, "outcome"),
		partElapsed: m.newHistogram("stoa_document_search_part_duration", "s", "Time of a part of a search: expand (models make up wordings or an answer), embed (the query), vectors, words, "+
			"load (what was found), rerank (by a model).", secondsBuckets, "part"),
	}
}

// RecordDocument counts a document that was worked on, with the chunks that it has now.
func (d *Documents) RecordDocument(app string, o indexing.Outcome, chunks int) {
	ctx := context.Background()
	d.total.Add(ctx, 1, d.recorder.withAppLabel(app, labelSet{{"outcome", string(o)}}))
	if chunks > 0 {
		d.chunks.Add(ctx, int64(chunks), d.recorder.withAppLabel(app, labelSet{}))
	}
}

// RecordStep records the duration of a step of a document's indexing.
func (d *Documents) RecordStep(step string, took time.Duration) {
	d.step.Record(context.Background(), took.Seconds(), d.recorder.labels.sets.optionFor(labelSet{{"step", step}}))
}

// RecordPass counts a pass over a document store, with its duration.
func (d *Documents) RecordPass(app string, o indexing.PassOutcome, took time.Duration) {
	ctx := context.Background()
	d.passes.Add(ctx, 1, d.recorder.withAppLabel(app, labelSet{{"outcome", string(o)}}))
	d.passElapsed.Record(ctx, took.Seconds(), d.recorder.labels.sets.optionFor(labelSet{{"outcome", string(o)}}))
}

// RecordSearch counts a search of a document store of an app, with its duration.
func (d *Documents) RecordSearch(app string, o retrieval.Outcome, took time.Duration) {
	ctx := context.Background()
	d.searches.Add(ctx, 1, d.recorder.withAppLabel(app, labelSet{{"outcome", string(o)}}))
	d.searchElapsed.Record(ctx, took.Seconds(), d.recorder.labels.sets.optionFor(labelSet{{"outcome", string(o)}}))
}

// RecordSearchPart records the duration of a part of a search.
func (d *Documents) RecordSearchPart(p retrieval.Part, took time.Duration) {
	d.partElapsed.Record(context.Background(), took.Seconds(), d.recorder.labels.sets.optionFor(labelSet{{"part", string(p)}}))
}
