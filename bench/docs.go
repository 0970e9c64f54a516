package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"stoa/bench/load"
	"stoa/bench/proc"
	"stoa/bench/stoa"
)

const (
	perDocument = 20  // chunks, about
	chunkSize   = 390 // characters, about
	groups      = 100 // of documents; a filter by group keeps 1%
	questions   = 25  // of each mode
	recallOf    = 10  // the nearest

	// There are a dozen cells for each engine. More rounds, or longer ones, would take longer than all else of DOCS.
	searchRounds = 3
	searchSpan   = 2 * time.Second
)

var modes = []string{"text", "vector", "hybrid"}

var (
	errIndexing = errors.New("documents failed to be indexed")
	errNotFound = errors.New("a search did not find what it should")
)

// question is a search, over HTTP and as the words of it.
type question struct {
	mode   string
	words  []string
	target load.Target
}

// library is a document store that is searched.
type library struct {
	*bareStore
	asked map[string][]question // by mode
	what  string
}

// docs measures document stores on both engines.
func docs(ctx context.Context, l *lab, _ func(...string) bool, r *report) error {
	r.note("DOCS: searches are measured in up to %d rounds of %v%s", searchRounds, searchSpan,
		pick(l.quick, "; a quick run leaves out 100,000 chunks, and has 200 tenants in place of 1,000", ""))
	if err := l.searchService(ctx, r); err != nil {
		return err
	}
	if err := l.docsOn(ctx, "SQLite", l.sqlite(), r); err != nil {
		return err
	}
	database, err := l.database(ctx)
	if err != nil {
		return err
	}
	return l.docsOn(ctx, "PostgreSQL", l.cluster.URL(database), r)
}

func (l *lab) docsOn(ctx context.Context, engine, url string, r *report) error {
	s, err := l.stoa(ctx, url)
	if err != nil {
		return err
	}
	defer s.Stop()
	sizes := pick(l.quick, []int{1000, 10_000}, []int{1000, 10_000, 100_000})
	var all []library
	defer func() {
		for _, x := range all {
			x.close()
		}
	}()
	for i, n := range sizes {
		store := fmt.Sprintf("chunks%d", n)
		writer, reader, err := s.CreateLibrary(ctx, store, store)
		if err != nil {
			return err
		}
		filled, err := l.indexStore(ctx, s, writer, store, n, i == len(sizes)-1)
		if err != nil {
			return fmt.Errorf("%s: %w", store, err)
		}
		if i == len(sizes)-1 {
			r.rows = append(r.rows, filled.rows(engine)...)
		}
		x, err := openLibrary(ctx, s, url, reader, store)
		if err != nil {
			return err
		}
		x.what = fmt.Sprintf("%d chunks of a tenant", n)
		all = append(all, x)
		if i == len(sizes)-1 {
			recall, err := x.recall(ctx, s, reader)
			if err != nil {
				return err
			}
			r.rows = append(r.rows, atLeast("DOCS", fmt.Sprintf("%s: recall@%d of vector search with a filter that keeps 1%% of %d chunks, against comparing all", engine, recallOf, n), 0.95, recall))
		}
	}
	small, err := l.smallStores(ctx, s, url)
	if err != nil {
		return err
	}
	all = append(all, small)
	if !strings.HasPrefix(url, "sqlite") {
		if err := l.cluster.Checkpoint(ctx); err != nil {
			return err
		}
	}
	if err := l.settle(ctx, s.Process); err != nil {
		return err
	}
	for _, x := range all {
		for _, mode := range modes {
			one, err := l.searches(ctx, s, x, mode)
			if err != nil {
				return fmt.Errorf("%s, %s, %s: %w", engine, x.what, mode, err)
			}
			r.rows = append(r.rows, one.row(fmt.Sprintf("%s, %s: %s search ÷ the bare query", engine, x.what, mode)))
		}
	}
	if engine == "PostgreSQL" {
		r.note("DOCS: the bench's PostgreSQL has no pgvector, so that stores are searched exactly; BenchmarkVectorIndex of agentsvc/document/corpus measures approximate indexes")
	}
	return nil
}

// filling is what it took to index a store.
type filling struct {
	chunks         int // of the store
	share          int // of them what took so long and cost so much
	took           time.Duration
	cost           cost
	before, memory float64 // MB, after a tenth and after all
}

func (f filling) rows(engine string) []row {
	return []row{
		plain("DOCS", engine+": chunks indexed a second, hashing embedder (upload to searchable)", number(float64(f.share)/f.took.Seconds())),
		plain("DOCS", engine+": µs of the server's processor time for each, its helpers included; PostgreSQL's", micros(series{float64(f.cost.server.Microseconds())})+"; "+
			pick(engine == "PostgreSQL", micros(series{float64(f.cost.postgres.Microseconds())}), "-")),
		atMost("DOCS", fmt.Sprintf("%s: memory (RSS) after %d chunks ÷ after a tenth of them", engine, f.chunks), 1.1, series{f.memory / f.before}),
		plain("DOCS", engine+": MB of memory (RSS) then", number(f.memory)),
	}
}

// indexStore uploads n chunks and waits until they are indexed. Weighed means that the server's memory is read.
func (l *lab) indexStore(ctx context.Context, s *stoa.Server, token, store string, n int, weighed bool) (f filling, err error) {
	documents := n / perDocument
	progress("%d documents are indexed", documents)
	at := 0
	for _, to := range []int{documents / 10, documents} {
		m := meter{lab: l, server: s.Process}
		began, before, had := time.Now(), m.read(), f.chunks
		if before.server, err = proc.TreeCPU(s.PID()); err != nil { // with the processes that extract texts
			return f, err
		}
		if f.chunks, err = fillStore(ctx, s, token, store, at, to, perDocument); err != nil {
			return f, err
		}
		f.took = time.Since(began)
		f.share = f.chunks - had
		all, err := proc.TreeCPU(s.PID())
		if err != nil {
			return f, err
		}
		f.cost = m.since(before, f.share)
		f.cost.server = (all - before.server) / time.Duration(max(1, f.share))
		f.before = f.memory
		at = to
		if weighed {
			if f.memory, err = settled(ctx, s.PID(), time.Second); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// fillStore uploads the documents from and below to and returns how many chunks the store has when all are indexed.
func fillStore(ctx context.Context, s *stoa.Server, token, store string, from, to, chunks int) (int, error) {
	err := forEach(ctx, to-from, func(ctx context.Context, i int) error {
		i += from
		return s.Put(ctx, token, store, fmt.Sprintf("doc-%05d", i), fmt.Sprintf("group-%d", i%groups), prose(uint64(i), chunks))
	})
	for err == nil {
		var has stoa.Stored
		has, err = s.Stored(ctx, token)
		switch {
		case err != nil:
		case has.Failed > 0:
			err = fmt.Errorf("%w: %d of %d", errIndexing, has.Failed, has.Documents)
		case has.Documents >= to && has.Pending == 0:
			return has.Chunks, nil
		default:
			err = sleep(ctx, 50*time.Millisecond)
		}
	}
	return 0, err
}

// word is one of 5,000, those with low numbers far more often, as in texts.
func word(r *rand.Rand) string {
	return fmt.Sprintf("w%d", int(5000*r.Float64()*r.Float64()*r.Float64()))
}

// prose is the text of document i.
func prose(i uint64, chunks int) string {
	r := rand.New(rand.NewPCG(i, 1))
	var b strings.Builder
	for b.Len() < chunks*chunkSize {
		b.WriteString(word(r))
		b.WriteByte(' ')
	}
	return b.String()
}

// openLibrary prepares the questions to a store. Their words are from its first document.
func openLibrary(ctx context.Context, s *stoa.Server, url, token, store string) (x library, err error) {
	words := strings.Fields(prose(0, 1))
	r := rand.New(rand.NewPCG(2, 3))
	x.asked = map[string][]question{}
	for range questions {
		some := []string{words[r.IntN(len(words))], words[r.IntN(len(words))], words[r.IntN(len(words))]}
		for _, mode := range modes {
			q := stoa.Query{Query: strings.Join(some, " "), Mode: mode, Limit: 10}
			target, err := s.Searching(token, store, q)
			if err != nil {
				return x, err
			}
			x.asked[mode] = append(x.asked[mode], question{mode, some, target})
			if len(x.asked[mode]) > 1 {
				continue
			}
			if found, err := s.Search(ctx, token, store, q); err != nil || len(found.Results) == 0 || found.Degraded != "" {
				return x, errors.Join(err, fmt.Errorf("%w: %q by %s: %+v", errNotFound, q.Query, mode, found))
			}
		}
	}
	x.bareStore, err = openBareStore(ctx, url, store)
	return x, err
}

// smallStores makes many tenants with ten chunks each and returns the store of the last.
func (l *lab) smallStores(ctx context.Context, s *stoa.Server, url string) (library, error) {
	n := pick(l.quick, 200, 1000)
	progress("%d tenants with a small store are made", n)
	var last, asks string
	err := forEach(ctx, n, func(ctx context.Context, i int) error {
		store := fmt.Sprintf("small%d", i)
		writer, reader, err := s.CreateLibrary(ctx, store, store)
		if err == nil {
			err = s.Put(ctx, writer, store, "doc-00000", "group-0", prose(0, 10))
		}
		if i == n-1 {
			last, asks = writer, reader
		}
		return err
	})
	if err != nil {
		return library{}, err
	}
	store := fmt.Sprintf("small%d", n-1)
	if _, err := fillStore(ctx, s, last, store, 1, 1, 0); err != nil {
		return library{}, err
	}
	x, err := openLibrary(ctx, s, url, asks, store)
	x.what = fmt.Sprintf("10 chunks of a tenant, %d tenants", n)
	return x, err
}

// duel is how long searches and bare queries took, in blocks by turns, and what they cost.
type duel struct {
	ratios, times series // of the medians and of the processor time of each round
	search, bare  []time.Duration
}

// searches measures the searches of one connection and the bare queries in turn. Processor time is of the server and the
// database, in the bare case of this program and the database.
func (l *lab) searches(ctx context.Context, s *stoa.Server, x library, mode string) (d duel, err error) {
	asked := x.asked[mode]
	c, err := load.Dial(ctx, asked[0].target)
	if err != nil {
		return d, err
	}
	defer func() { _ = c.Close() }()
	sides := []func(question) error{
		func(q question) error { _, err := c.Call(ctx, q.target); return err },
		func(q question) error { return x.read(ctx, q) },
	}
	for _, do := range sides { // the warm-up
		if err := do(asked[0]); err != nil {
			return d, err
		}
	}
	for round := range min(l.rounds, searchRounds) {
		var took [2][]time.Duration
		var cost [2]cost
		n := 0 // of each side, as many as the first side has time for
		for _, side := range rotate([]int{0, 1}, round) {
			m := meter{lab: l, server: pick(side == 0, s.Process, nil)}
			before, end := m.read(), time.Now().Add(min(l.span, searchSpan)/2)
			for i := 0; i < n || n == 0 && (i < 5 || i < 500 && time.Now().Before(end)); i++ {
				began := time.Now()
				if err := sides[side](asked[i%len(asked)]); err != nil {
					return d, err
				}
				took[side] = append(took[side], time.Since(began))
			}
			n = len(took[side])
			cost[side] = m.since(before, n)
		}
		d.search, d.bare = append(d.search, took[0]...), append(d.bare, took[1]...)
		d.ratios = append(d.ratios, quantile(took[0], 0.5)/quantile(took[1], 0.5))
		if bare := cost[1].load + max(0, cost[1].postgres)*pick[time.Duration](x.postgres, 1, 0); bare > 0 {
			d.times = append(d.times, float64(cost[0].server+max(0, cost[0].postgres)*pick[time.Duration](x.postgres, 1, 0))/float64(bare))
		}
	}
	progress("%s, %s: %.2f ms and %.2f ms, processor time %s", x.what, mode, quantile(d.search, 0.5), quantile(d.bare, 0.5), d.times)
	return d, nil
}

// row has the ratios of both quantiles; the goal is for each.
func (d duel) row(what string) row {
	x := atMost("DOCS", what+", c=1, p50; p99; processor time", 1.3, d.ratios)
	tail := quantile(d.search, 0.99) / quantile(d.bare, 0.99)
	if tail > 1.3 {
		x.met = no
	}
	x.figure += fmt.Sprintf("; %s; %s (p50 %s ms of %s)", number(tail), d.times, number(quantile(d.search, 0.5)), number(quantile(d.bare, 0.5)))
	return x
}

// quantile is in ms.
func quantile(of []time.Duration, q float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Nanoseconds()) / 1e6
}

// recall asks for the chunks nearest to some of the group's, in that group alone, and returns the share found. The text of a
// chunk as the query has the chunk's vector. A passage may be several adjacent chunks, so what counts is the text.
func (x library) recall(ctx context.Context, s *stoa.Server, token string) (series, error) {
	all, err := x.group(ctx, "group-7")
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no chunk of a group", errNotFound)
	}
	var found, want float64
	for i := 0; i < len(all); i += max(1, len(all)/20) {
		got, err := s.Search(ctx, token, x.store, stoa.Query{Query: all[i].text, Mode: "vector", Limit: recallOf, Filter: map[string]string{"group": "group-7"}})
		if err != nil {
			return nil, err
		}
		for _, l := range nearest(all, all[i], recallOf) {
			want++
			if slices.ContainsFunc(got.Results, func(p struct{ Document, Text string }) bool {
				return p.Document == l.document && strings.Contains(p.Text, l.text)
			}) {
				found++
			}
		}
	}
	return series{found / want}, nil
}
