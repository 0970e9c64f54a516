// Package words extracts the words by which texts are found: the same for stored texts and for questions, and the same on
// every database engine, because no engine takes part in it.
package words

import (
	"slices"
	"strings"
	"unicode"
)

const (
	// maxWordBytes bounds a word; a longer one is cut.
	maxWordBytes = 64
	// maxWords bounds the different words of a text.
	maxWords = 500
	// maxOccurrences bounds the words of a text where repeated ones count.
	maxOccurrences = 4000
	// maxQuestionWords bounds the words of a question, and so the size of the query.
	maxQuestionWords = 32
)

// Extract returns the words by which a text is found, each once: sequences of letters and digits in lower case, without
// the s of an English plural. Chinese and Japanese have no spaces between words; there each pair of adjacent characters
// is a word. A word has letters, digits and combining marks only, so it may be quoted in any query.
func Extract(text string) []string {
	var found []string
	seen := map[string]bool{}
	forEachWord(text, func(w string) bool {
		if !seen[w] {
			seen[w] = true
			found = append(found, w)
		}
		return len(found) < maxWords
	})
	return found
}

// List returns the words of a text as [Extract] does, in their order and as often as they occur.
func List(text string) []string {
	var found []string
	forEachWord(text, func(w string) bool {
		found = append(found, w)
		return len(found) < maxOccurrences
	})
	return found
}

// forEachWord calls yield for each word of text until it returns false.
func forEachWord(text string, yield func(string) bool) {
	more := true
	add := func(w string) {
		if w = stemWord(w); more && w != "" {
			more = yield(w)
		}
	}
	for run := range strings.FieldsFuncSeq(strings.ToLower(text), isSeparator) {
		for run != "" {
			end := strings.IndexFunc(run, IsUnspacedScript)
			if end < 0 {
				add(run)
				break
			}
			add(run[:end])
			run = run[end:]
			if end = strings.IndexFunc(run, func(r rune) bool { return !IsUnspacedScript(r) }); end < 0 {
				end = len(run)
			}
			addPairs([]rune(run[:end]), add)
			run = run[end:]
		}
		if !more {
			return
		}
	}
}

// isSeparator reports whether r is not part of a word.
func isSeparator(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
}

// IsUnspacedScript reports whether r belongs to a script without spaces between words.
func IsUnspacedScript(r rune) bool {
	// All of them are above the scripts of most texts.
	return r >= 0x2E80 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
}

// addPairs adds each pair of adjacent characters, or the character if there is only one.
func addPairs(run []rune, add func(string)) {
	if len(run) == 1 {
		add(string(run))
	}
	for i := range len(run) - 1 {
		add(string(run[i : i+2]))
	}
}

// stemWord cuts a word to maxWordBytes and removes the s of an English plural.
func stemWord(w string) string {
	if len(w) > maxWordBytes {
		w = strings.ToValidUTF8(w[:maxWordBytes], "")
	}
	if len(w) > 3 && w[len(w)-1] == 's' && w[len(w)-2] != 's' {
		return w[:len(w)-1]
	}
	return w
}

// ExtractQuestion returns the words of a question except the common ones.
func ExtractQuestion(question string) []string {
	found := slices.DeleteFunc(Extract(question), func(w string) bool { return commonWords[w] || len(w) == 1 && w[0] < '0' })
	return found[:min(len(found), maxQuestionWords)]
}

// IsCommon reports whether a word that [List] returned is one that nearly every text has.
func IsCommon(word string) bool { return commonWords[word] }

// commonWords are English words that nearly every text has, in the form that Extract returns.
var commonWords = func() map[string]bool {
	set := map[string]bool{}
	for _, w := range Extract(`a about after all also am an and any are as at be been but by can could did do does doing don for from get
		had has have he her here him his how i if in into is it its just know let like ll m make me more my no not now of on one or our
		out over please re s she should so some t tell than that the their them then there these they this those to too up us ve very want
		was we were what when where which who whom why will with would yes you your`) {
		set[w] = true
	}
	return set
}()

// IsWord reports whether w consists of what words have: letters, digits and combining marks.
func IsWord(w string) bool {
	return w != "" && len(w) <= maxWordBytes && !strings.ContainsFunc(w, isSeparator)
}
