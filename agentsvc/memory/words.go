package memory

import (
	"slices"
	"strings"
	"unicode"
)

const (
	maxWordBytes     = 64  // bytes; what is longer is cut
	maxWords         = 500 // of one text
	maxQuestionWords = 32  // of one question
)

// extractWords returns what a text is found by, each word once: runs of letters and digits in lower case, without the s of
// an English plural. Chinese and Japanese, which do not part their words, are found by each two characters that
// follow each other.
func extractWords(text string) []string {
	var found []string
	seen := map[string]bool{}
	add := func(w string) {
		if w = stemWord(w); w != "" && !seen[w] && len(found) < maxWords {
			seen[w] = true
			found = append(found, w)
		}
	}
	for run := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }) {
		for run != "" {
			end := strings.IndexFunc(run, isUnspacedScript)
			if end < 0 {
				add(run)
				break
			}
			add(run[:end])
			run = run[end:]
			if end = strings.IndexFunc(run, func(r rune) bool { return !isUnspacedScript(r) }); end < 0 {
				end = len(run)
			}
			addPairs([]rune(run[:end]), add)
			run = run[end:]
		}
	}
	return found
}

// isUnspacedScript reports whether r belongs to a script that puts no spaces between words.
func isUnspacedScript(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
}

func addPairs(run []rune, add func(string)) {
	if len(run) == 1 {
		add(string(run))
	}
	for i := range len(run) - 1 {
		add(string(run[i : i+2]))
	}
}

func stemWord(w string) string {
	if len(w) > maxWordBytes {
		w = strings.ToValidUTF8(w[:maxWordBytes], "")
	}
	if len(w) > 3 && w[len(w)-1] == 's' && w[len(w)-2] != 's' {
		return w[:len(w)-1]
	}
	return w
}

// questionWords returns the words of a question that tell it from others.
func questionWords(question string) []string {
	found := slices.DeleteFunc(extractWords(question), func(w string) bool { return commonWords[w] || len(w) == 1 && w[0] < '0' })
	return found[:min(len(found), maxQuestionWords)]
}

// commonWords are English words that nearly every text has, as words makes them.
var commonWords = func() map[string]bool {
	set := map[string]bool{}
	for _, w := range extractWords(`a about after all also am an and any are as at be been but by can could did do does doing don for from get
		had has have he her here him his how i if in into is it its just know let like ll m make me more my no not now of on one or our
		out over please re s she should so some t tell than that the their them then there these they this those to too up us ve very want
		was we were what when where which who whom why will with would yes you your`) {
		set[w] = true
	}
	return set
}()
