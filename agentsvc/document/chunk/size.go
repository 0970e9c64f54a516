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

// longestWord is the length of a word, in bytes, from which on the text counts as one without spaces.
const longestWord = 128

// cutBySize cuts a part of the text into chunks of at most s.Size characters, of which each but the first repeats the
// last s.Overlap characters of the one before it. Of the characters that are left at the end, it leaves at least
// s.MinSize, unless it would have to cut a word.
func cutBySize(out *output, group span, s Settings) {
	left := utf8.RuneCountInString(out.text[group.start:group.end])
	r := cutRange{shortest: max(s.MinSize, s.Overlap+1), most: s.Size} // at least 1 character is new
	r.least = max(r.shortest, s.Overlap+(s.Size-s.Overlap)/2)
	for at := group.start; left > 0 && !out.isFull(); {
		if left <= s.Size {
			out.add(span{at, group.end})
			return
		}
		r.best = min(s.Size, max(left-s.MinSize, r.least))
		cut, count := r.findCut(out.text[at:group.end], s.PreserveWords)
		out.add(span{at, at + cut})
		back, repeated := findOverlap(out.text[at:at+cut], s.Overlap, s.PreserveWords)
		at += cut - back
		left -= count - repeated
	}
}

// cutRange are the sizes of a chunk, in characters.
type cutRange struct {
	shortest    int // for the end of a word
	least, best int // for other borders, and without words always best
	most        int // for the end of a word, if there is none up to best
}

// border is a place to cut.
type border struct{ at, count int } // in bytes and in characters

// findCut returns where to cut a text that has more than r.most characters, in bytes and in characters. With words it
// cuts at the end of a paragraph, a sentence, a line or a word, in this order, if there is one; a word that is longer than
// the range is cut.
func (r cutRange) findCut(text string, words bool) (cut, count int) {
	var space, line, sentence, paragraph border
	var last rune  // the character before
	ended := false // a sentence ended, and only closing marks follow
	here := border{}
	for here.count < r.best {
		c, n := utf8.DecodeRuneInString(text[here.at:])
		here = border{here.at + n, here.count + 1}
		isSpace := unicode.IsSpace(c)
		if here.count >= r.shortest && isSpace {
			space = here
		}
		if here.count >= r.least {
			switch {
			case c == '\n' && last == '\n':
				paragraph = here
			case c == '\n':
				line = here
			}
			if isSpace && ended || isWideStop(c) {
				sentence = here
			}
		}
		ended = isStop(c) || ended && (isSpace || unicode.In(c, unicode.Pe, unicode.Pf) || c == '"' || c == '\'')
		last = c
	}
	if !words {
		return here.at, here.count
	}
	if next, _ := utf8.DecodeRuneInString(text[here.at:]); unicode.IsSpace(next) {
		space = here
	}
	switch {
	case paragraph.at > 0 && paragraph.count >= r.best-r.best/paragraphShare:
		return paragraph.at, paragraph.count
	case sentence.at > 0 && sentence.count >= r.best/sentenceShare:
		return sentence.at, sentence.count
	case line.at > 0 && line.count >= r.best/sentenceShare:
		return line.at, line.count
	case space.at > 0:
		return space.at, space.count
	}
	if space = findSpace(text, here, r.most); space.at > 0 {
		return space.at, space.count
	}
	return here.at, here.count
}

// findSpace returns the first border before a space that is behind a place and has at most most characters before it.
func findSpace(text string, at border, most int) border {
	for at.at < len(text) && at.count <= most {
		r, n := utf8.DecodeRuneInString(text[at.at:])
		if unicode.IsSpace(r) {
			return at
		}
		at = border{at.at + n, at.count + 1}
	}
	return border{}
}

// findOverlap returns how much of a chunk's end the next chunk repeats, in bytes and in characters: at most most
// characters. With words it begins with a whole word; it has a part of one only in text without spaces.
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
	if strings.IndexFunc(text[max(0, at-longestWord):at], unicode.IsSpace) >= 0 {
		return 0, 0
	}
	return len(repeated), count
}

// isStop reports whether r ends a sentence if white space follows.
func isStop(r rune) bool {
	return r == '.' || r == '!' || r == '?' || r == '…' || r == '؟' || r == '।'
}

// isWideStop reports whether r ends a sentence in a script without spaces.
func isWideStop(r rune) bool { return r == '。' || r == '！' || r == '？' }
