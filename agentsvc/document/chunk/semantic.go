package chunk

import (
	"hash/fnv"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/sentences"
)

// Parameters of cuts by topic. The comparison of neighbouring blocks of sentences by their words is Hearst's TextTiling;
// blockSentences is the small end of what it recommends, since chunks are short.
const (
	blockSentences = 3
	// leastShare bounds the shortest chunk by a share of the largest, so that the search for each border, which looks at
	// the largest chunk, is linear in the text.
	leastShare = 8
	// Scores of a border, in units of its depth, which is 0 to 2: paragraphBonus for one between two paragraphs, endScore
	// for the end of the part. sizePenalty is what a chunk of no size or of twice the size that is aimed at costs.
	paragraphBonus = 0.3
	endScore       = 0.5
	sizePenalty    = 0.5
	// depthSteps bounds the search for the least changes around a border.
	depthSteps = 10
	// minSentence is the length in characters up to which a sentence is joined with the next: headings, items.
	minSentence = 16
	// maxRun and maxWindow bound what the library for sentences gets at once: it looks ahead over anything that is no
	// letter, from each character, so that a long run of such characters would take quadratic time. In bytes.
	maxRun     = 64 // at the next space, at longestRun anywhere
	longestRun = 512
	maxWindow  = 8 << 10
	// maxWordBytes is how much of a word is compared.
	maxWordBytes = 64
)

// sentence is a part of a text that is not cut.
type sentence struct {
	end       int  // byte offset in the text
	size      int  // in characters
	paragraph bool // a paragraph ends with it
}

// cutByTopic cuts a part of the text between sentences into chunks of s.MinSize to s.MaxSize characters, where the words
// of the sentences before and after change most.
func cutByTopic(out *output, group span, s Settings, table bool) {
	all := splitSentences(out.text, group, s, table)
	v := vocabulary{text: out.text, sentences: all, start: group.start}
	v.countWords()
	left := 0
	for _, sentence := range all {
		left += sentence.size
	}
	at := group.start
	for first := 0; first < len(all) && !out.isFull(); {
		next, size := chooseBorder(&v, first, left, s)
		out.add(span{at, all[next-1].end})
		at, first, left = all[next-1].end, next, left-size
	}
}

// chooseBorder returns the sentence before which the chunk that begins with first ends, and the chunk's characters. left
// are the characters from first to the end.
func chooseBorder(v *vocabulary, first, left int, s Settings) (next, size int) {
	least := leastByTopic(s)
	best, bestSize, bestScore := first+1, v.sentences[first].size, math.Inf(-1)
	for i := first; i < len(v.sentences); i++ {
		if size += v.sentences[i].size; size > s.MaxSize && i > first {
			break
		}
		rest := left - size
		if size < least && rest > 0 && bestScore == math.Inf(-1) {
			best, bestSize = i+1, size // if no border follows in the range
			continue
		}
		if rest > 0 && rest < s.MinSize {
			continue
		}
		score := -sizePenalty * math.Min(1, math.Abs(float64(size-s.Size))/float64(s.Size))
		switch {
		case rest == 0:
			score += endScore
		case v.sentences[i].paragraph:
			score += v.depth(i) + paragraphBonus
		default:
			score += v.depth(i)
		}
		if score > bestScore {
			best, bestSize, bestScore = i+1, size, score
		}
	}
	return best, bestSize
}

// leastByTopic returns the size of the shortest chunk but the last of a part.
func leastByTopic(s Settings) int { return max(s.MinSize, s.MaxSize/leastShare) }

// longestSentence returns the size of the longest sentence that is not divided: together with less than the shortest
// chunk it fits into the largest.
func longestSentence(s Settings) int { return max(1, s.MaxSize-leastByTopic(s)) }

// splitSentences divides a part of the text into sentences that fit into a chunk. In a table each line is one.
func splitSentences(text string, group span, s Settings, table bool) []sentence {
	var all []sentence
	pending := sentence{end: group.start} // short sentences that are joined with the next
	add := func(end, size int, paragraph bool) {
		if pending.size+size > longestSentence(s) && pending.size > 0 {
			all = append(all, pending)
			pending = sentence{}
		}
		pending = sentence{end, pending.size + size, paragraph}
		if pending.size >= minSentence {
			all = append(all, pending)
			pending = sentence{end: end}
		}
	}
	for at := group.start; at < group.end; {
		size := nextWindow(text[at:group.end], table)
		window := text[at : at+size]
		segments := sentences.FromString(maskBreaks(window, table))
		offset := 0
		for segments.Next() {
			part := window[offset : offset+len(segments.Value())]
			offset += len(part)
			addPieces(at+offset-len(part), part, s, strings.HasSuffix(part, "\n\n") || table, add)
		}
		at += size
	}
	if pending.size > 0 {
		all = append(all, pending)
	}
	return all
}

// addPieces adds a sentence, or its pieces if it is too long.
func addPieces(start int, part string, s Settings, paragraph bool, add func(end, size int, paragraph bool)) {
	left, most := utf8.RuneCountInString(part), longestSentence(s)
	for left > most {
		r := cutRange{shortest: 1, least: max(1, most/2), best: most, most: most}
		cut, count := r.findCut(part, s.PreserveWords)
		start += cut
		add(start, count, false)
		part, left = part[cut:], left-count
	}
	if left > 0 {
		add(start+len(part), left, paragraph)
	}
}

// nextWindow returns how many bytes of text to divide into sentences at once: a paragraph with the empty lines behind
// it, or less if it is longer than maxWindow or has a run of more than maxRun bytes without a letter.
func nextWindow(text string, table bool) int {
	run := 0
	breaks := 0 // line breaks at the end so far
	for i, r := range text {
		isBreak := r == '\n'
		if breaks > 1 && !unicode.IsSpace(r) || table && breaks > 0 && !isBreak {
			return i
		}
		if i >= maxWindow && unicode.IsSpace(r) || i >= 2*maxWindow || run >= maxRun && unicode.IsSpace(r) || run >= longestRun {
			return i
		}
		switch {
		case isBreak:
			breaks++
		case !unicode.IsSpace(r):
			breaks = 0
		}
		if run += utf8.RuneLen(r); unicode.IsLetter(r) {
			run = 0
		}
	}
	return len(text)
}

// maskBreaks returns text with spaces for the line breaks that are in the middle of a sentence, since the library ends a
// sentence at each: those before a letter, where a line was too long for its page. The result has the same length.
func maskBreaks(text string, table bool) string {
	if table || !strings.Contains(text, "\n") {
		return text
	}
	masked := []byte(text)
	for i := range len(masked) - 1 {
		if masked[i] != '\n' {
			continue
		}
		if next, _ := utf8.DecodeRuneInString(text[i+1:]); unicode.IsLetter(next) && (i == 0 || text[i-1] != '\n') || next == '\n' {
			masked[i] = ' '
		}
	}
	return string(masked)
}

// vocabulary compares the words of neighbouring sentences.
type vocabulary struct {
	text      string
	sentences []sentence
	start     int               // byte offset of the first sentence
	words     []uint32          // hashes of the words of all sentences
	ends      []int             // of each sentence in words
	before    map[uint32]uint32 // counts of words of the two blocks, kept to be used again
	after     map[uint32]uint32
	changes   []float32 // results of change, -1 = not computed
}

// countWords finds the words of the sentences.
func (v *vocabulary) countWords() {
	v.before, v.after = map[uint32]uint32{}, map[uint32]uint32{}
	at := v.start
	for _, s := range v.sentences {
		for word := range strings.FieldsFuncSeq(v.text[at:s.end], func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			v.addWord(word)
		}
		v.ends = append(v.ends, len(v.words))
		v.changes = append(v.changes, -1)
		at = s.end
	}
}

// addWord adds a word; of a script without spaces, each character.
func (v *vocabulary) addWord(word string) {
	if r, _ := utf8.DecodeRuneInString(word); unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) {
		for _, r := range word {
			v.words = append(v.words, uint32(r))
		}
		return
	}
	word = strings.ToLower(word[:min(len(word), maxWordBytes)])
	hash := fnv.New32a() // not a random hash: the same text must give the same chunks
	_, _ = hash.Write([]byte(word))
	v.words = append(v.words, hash.Sum32())
}

// change returns how much the words change behind sentence i: 0 = the blocks before and after have the same words in
// the same numbers, 1 = none in common.
func (v *vocabulary) change(i int) float64 {
	if v.changes[i] < 0 {
		v.changes[i] = v.compareBlocks(i)
	}
	return float64(v.changes[i])
}

// depth returns how much more the words change behind sentence i than around it: the sum of the differences to the least
// change before and after, as far as the changes fall. Any two sentences of a text differ; a change of topic is where
// they differ more than their neighbours do.
func (v *vocabulary) depth(i int) float64 {
	here, sum := v.change(i), 0.0
	for _, step := range []int{-1, 1} {
		least := here
		for j := i + step; j >= 0 && j < len(v.sentences)-1 && j-i <= depthSteps && i-j <= depthSteps; j += step {
			next := v.change(j)
			if next > least {
				break
			}
			least = next
		}
		sum += here - least
	}
	return sum
}

// compareBlocks is change without the memory of earlier results.
func (v *vocabulary) compareBlocks(i int) float32 {
	v.countBlock(v.before, i-blockSentences+1, i)
	v.countBlock(v.after, i+1, i+blockSentences)
	var product, a, b float64
	for word, n := range v.before {
		product += float64(n) * float64(v.after[word])
		a += float64(n) * float64(n)
	}
	for _, n := range v.after {
		b += float64(n) * float64(n)
	}
	if a == 0 || b == 0 {
		return 0
	}
	return float32(max(0, 1-product/math.Sqrt(a*b)))
}

// countBlock counts the words of the sentences first to last, as far as there are such.
func (v *vocabulary) countBlock(counts map[uint32]uint32, first, last int) {
	clear(counts)
	first, last = max(first, 0), min(last, len(v.ends)-1)
	if first > last {
		return
	}
	begin := 0
	if first > 0 {
		begin = v.ends[first-1]
	}
	for _, word := range v.words[begin:v.ends[last]] {
		counts[word]++
	}
}
