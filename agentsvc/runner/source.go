package runner

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"stoa/agentsvc"
)

// sources are the passages of documents that the models of a turn are given. Tools and prompts number them in
// goroutines of their own.
type sources struct {
	mu sync.Mutex
	// numbers has the number of each passage, last is the highest one. Guarded by mu.
	numbers map[sourceKey]int
	last    int
	// earlier are the entries of earlier turns, until the first passage is numbered; see skipEarlier. Guarded by mu.
	earlier []agentsvc.Entry
	// unrecorded are not on the log yet. Guarded by mu.
	unrecorded []agentsvc.Sources
	// inPrompt are the numbers of passages in the system prompt. Guarded by mu.
	inPrompt map[int]bool
	// recorded are on the log or in pending, each once. Used only by the goroutine of the run.
	recorded []agentsvc.Source
}

// sourceKey identifies a passage within its app.
type sourceKey struct{ store, document, passage string }

// numberSources implements [agentsvc.SourceRecorder].
func (s *sources) numberSources(found []agentsvc.Source, inPrompt bool) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipEarlier()
	var added []agentsvc.Source
	numbers := make([]int, len(found))
	for i, source := range found {
		key := sourceKey{source.Store, source.Document, source.Passage}
		n := s.numbers[key]
		isNew := n == 0
		if isNew {
			if len(s.numbers) == agentsvc.MaxSources {
				continue
			}
			n = s.last + 1
		}
		numbers[i], source.N = n, n
		if isNew || inPrompt && !s.inPrompt[n] {
			s.noteNumber(key, n, inPrompt)
			added = append(added, source)
		}
	}
	if len(added) > 0 {
		s.unrecorded = append(s.unrecorded, agentsvc.Sources{List: added, InPrompt: inPrompt})
	}
	return numbers
}

// maxFirstNumber bounds the numbers with which a turn begins, so that all numbers of a turn fit into a mark.
const maxFirstNumber = 500

// continueNumbers makes the turn's numbers follow those of the passages in earlier turns of the session: the model reads
// both, and a mark must have one meaning.
func (s *sources) continueNumbers(session []agentsvc.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.earlier = session
}

// skipEarlier looks for the numbers in earlier turns, once: most turns number no passage. The caller has locked mu.
func (s *sources) skipEarlier() {
	quoted := map[string]bool{}
	addQuotedLines(quoted, s.earlier)
	s.earlier = nil
	for line := range quoted {
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(line, quotedPrefix), ","))
		if err == nil && n <= maxFirstNumber {
			s.last = max(s.last, n)
		}
	}
}

// noteNumber notes the number of a passage. The caller has locked mu.
func (s *sources) noteNumber(key sourceKey, n int, inPrompt bool) {
	if s.numbers == nil {
		s.numbers, s.inPrompt = map[sourceKey]int{}, map[int]bool{}
	}
	s.numbers[key] = n
	s.last = max(s.last, n)
	s.inPrompt[n] = s.inPrompt[n] || inPrompt
}

// drainEvents returns the unrecorded passages as events and forgets them.
func (s *sources) drainEvents() (evs []agentsvc.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.unrecorded {
		evs = append(evs, agentsvc.Event{Sources: &list})
	}
	s.unrecorded = nil
	return evs
}

// markRecorded adds passages that are on the log, from this attempt or an earlier one.
func (s *sources) markRecorded(list agentsvc.Sources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, source := range list.List {
		s.noteNumber(sourceKey{source.Store, source.Document, source.Passage}, source.N, list.InPrompt)
		// A passage is repeated on the log when it gets into the prompt too.
		if !slices.ContainsFunc(s.recorded, func(other agentsvc.Source) bool { return other.N == source.N }) {
			s.recorded = append(s.recorded, source)
		}
	}
}

// listGiven returns the recorded passages that a model was really given: those in the prompt, and those that a
// result of the turn quotes. A result may lack a passage because its call failed or because it was cut.
func (t *turnState) listGiven() (given []agentsvc.Source) {
	if len(t.sources.recorded) == 0 {
		return nil
	}
	quoted := map[string]bool{}
	for _, entries := range t.frames {
		addQuotedLines(quoted, entries)
	}
	addQuotedLines(quoted, t.entries)
	t.sources.mu.Lock()
	defer t.sources.mu.Unlock()
	for _, source := range t.sources.recorded {
		if t.sources.inPrompt[source.N] || quoted[source.Delimiter()] {
			given = append(given, source)
		}
	}
	return given
}

// quotedPrefix is the beginning of [agentsvc.Source.Delimiter].
const quotedPrefix = `{"n":`

// addQuotedLines adds the beginnings of the lines that quote a passage, in the results among entries.
func addQuotedLines(quoted map[string]bool, entries []agentsvc.Entry) {
	for _, e := range entries {
		if e.Result == nil || e.Result.Failed {
			continue
		}
		for line := range strings.SplitSeq(e.Result.Text, "\n") {
			if end := strings.IndexByte(line, ','); end > 0 && strings.HasPrefix(line, quotedPrefix) {
				quoted[line[:end+1]] = true
			}
		}
	}
}

// newCitations returns the citations of the turn's answer, for its metadata.
func (t *turnState) newCitations(answer agentsvc.Message) (list []any) {
	for _, source := range agentsvc.CiteSources(markedText(answer), t.listGiven()) {
		list = append(list, source.ToMetadata())
	}
	return list
}

// markedText returns the text of an answer in which marks are looked for. In JSON these are the strings only, since a
// list of numbers looks like a mark.
func markedText(answer agentsvc.Message) string {
	var b strings.Builder
	isData := false
	for _, p := range answer.Parts {
		if p.Data != nil {
			isData = true
			addStrings(&b, p.Data.Value)
		}
	}
	if isData {
		return b.String()
	}
	return answer.Text()
}

// addStrings adds the strings of a JSON value, one a line.
func addStrings(b *strings.Builder, value any) {
	switch value := value.(type) {
	case string:
		b.WriteString(value)
		b.WriteByte('\n')
	case []any:
		for _, v := range value {
			addStrings(b, v)
		}
	case map[string]any:
		for _, v := range value {
			addStrings(b, v)
		}
	}
}
