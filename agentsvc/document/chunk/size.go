package chunk

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parts of the largest chunk in which a better border is preferred to a larger chunk: 1/2 and 3/4.
const (
	sentenceShare  = 2
	paragraphShare = 4
)

// cutBySize cuts a part of the text into chunks of at most s.Size characters, of which each but the first repeats the
// last s.Overlap characters of the one before it. Of the characters that are left at the end, it leaves at least
// s.MinSize.
func cutBySize(out *output, group span, s Settings) {
	left := utf8.RuneCountInString(out.text[group.start:group.end])
	least := max(s.MinSize, s.Overlap+max(1, (s.Size-s.Overlap)/2)) // at least 1 character is new
	for at := group.start; left > 0; {
		if left <= s.Size {
			out.add(span{at, group.end})
			return
		}
		most := min(s.Size, max(left-s.MinSize, least))
		cut, count := findCut(out.text[at:group.end], least, most, s.PreserveWords)
		out.add(span{at, at + cut})
		back, repeated := findOverlap(out.text[at:at+cut], s.Overlap, s.PreserveWords)
		at += cut - back
		left -= count - repeated
	}
}

// findCut returns where to cut a text that has more than most characters, in bytes and in characters: after at least
// least and at most most. With words it cuts at the end of a paragraph, a sentence, a line or a word, in this order, if
// there is one; a word that is longer than the range is cut.
func findCut(text string, least, most int, words bool) (cut, count int) {
	type border struct{ at, count int }
	var space, line, sentence, paragraph border
	var last rune  // the character before
	ended := false // a sentence ended, and only closing marks follow
	at := 0
	for ; count < most; count++ {
		r, n := utf8.DecodeRuneInString(text[at:])
		at += n
		here := border{at, count + 1}
		isSpace := unicode.IsSpace(r)
		if count+1 >= least {
			switch {
			case r == '\n' && last == '\n':
				paragraph = here
			case r == '\n':
				line = here
			}
			if isSpace {
				space = here
			}
			if isSpace && ended || isWideStop(r) {
				sentence = here
			}
		}
		ended = isStop(r) || ended && (isSpace || unicode.In(r, unicode.Pe, unicode.Pf) || r == '"' || r == '\'')
		last = r
	}
	if !words {
		return at, count
	}
	if next, _ := utf8.DecodeRuneInString(text[at:]); unicode.IsSpace(next) {
		space = border{at, count}
	}
	switch {
	case paragraph.at > 0 && paragraph.count >= most-most/paragraphShare:
		return paragraph.at, paragraph.count
	case sentence.at > 0 && sentence.count >= most/sentenceShare:
		return sentence.at, sentence.count
	case line.at > 0 && line.count >= most/sentenceShare:
		return line.at, line.count
	case space.at > 0:
		return space.at, space.count
	}
	return at, count
}

// findOverlap returns how much of a chunk's end the next chunk repeats, in bytes and in characters: at most most
// characters. With words it begins with a whole word, unless there is no space at all.
func findOverlap(text string, most int, words bool) (size, count int) {
	at := len(text)
	for ; count < most && at > 0; count++ {
		_, n := utf8.DecodeLastRuneInString(text[:at])
		at -= n
	}
	repeated := text[at:]
	if before, _ := utf8.DecodeLastRuneInString(text[:at]); !words || at == 0 || unicode.IsSpace(before) {
		return len(repeated), count
	}
	if i := strings.IndexFunc(repeated, unicode.IsSpace); i >= 0 {
		repeated = strings.TrimLeftFunc(repeated[i:], unicode.IsSpace)
		return len(repeated), utf8.RuneCountInString(repeated)
	}
	return len(repeated), count
}

// isStop reports whether r ends a sentence if white space follows.
func isStop(r rune) bool {
	return r == '.' || r == '!' || r == '?' || r == '…' || r == '؟' || r == '।'
}

// isWideStop reports whether r ends a sentence in a script without spaces.
func isWideStop(r rune) bool { return r == '。' || r == '！' || r == '？' }
